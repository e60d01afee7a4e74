"""`python -m tocsin`: the command."""

from tocsin.cli import main

if __name__ == "__main__":
    main()
