"""`python -m tocsin` is the command `tocsin`."""

from tocsin.cli import main

main()
