"""`python -m gpufit`, the same as the installed command."""

from gpufit.cli.app import main

main()
