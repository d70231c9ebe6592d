"""`python -m remask` is `remask`."""

from remask.cli import main

main()
