"""`python -m remask` is `remask`."""

from remask.cli import main

__all__ = ["main"]

if __name__ == "__main__":
    main()
