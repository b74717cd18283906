"""`python -m apil.cli`."""

from apil.cli import main

if __name__ == "__main__":
    main()
