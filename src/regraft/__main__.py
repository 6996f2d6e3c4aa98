"""`python -m regraft`."""

from regraft.cli import entry

entry()
