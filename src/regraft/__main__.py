"""`python -m regraft`."""

from regraft.cli import main

main()
