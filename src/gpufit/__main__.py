"""The start of the `gpufit` command and of `python -m gpufit`."""

import gc


def main() -> None:
    """Runs the command line.

    A run is over before its garbage would matter. Looking for cycles as often as a server should costs a tenth of its time, and the
    search with which an interpreter ends a fifth: what is frozen is left out of it.
    """
    gc.set_threshold(1_000_000)

    from gpufit.cli import app

    try:
        app.main()
    finally:
        gc.freeze()


if __name__ == "__main__":
    main()
