"""The start of the `gpufit` command and of `python -m gpufit`."""

import gc


def main() -> None:
    """Runs the command line.

    A run is over before its garbage would matter: looking for cycles as often as a server should costs a tenth of the time.
    """
    gc.set_threshold(1_000_000)

    from gpufit.cli import app

    app.main()


if __name__ == "__main__":
    main()
