"""`python -m apil`."""

from apil.cli import main

if __name__ == "__main__":
    main()
