"""The models that a command line names, from wherever they come."""

from __future__ import annotations

from gpufit.model import Model


def models_named(names: list[str] | None, *, offline: bool, assume_dense: bool, exact: bool) -> tuple[Model, ...]:
    """The catalogue's models where nothing is named; otherwise each name once, in order."""
    from gpufit.sources.catalogue import all_models, find_model

    if not names:
        return all_models()
    found = []
    for name in dict.fromkeys(names):
        model = None if exact else find_model(name)
        if model is None:
            # The Hub, folders and files are only loaded when the catalogue does not know the name, or is not exact enough.
            from gpufit.sources.resolve import resolve_model

            model = resolve_model(name, offline=offline, exact=exact, assume_dense=assume_dense)
        found.append(model)
    return tuple(found)
