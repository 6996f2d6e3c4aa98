"""Drivers: ways to build and call the definitions of a file, so that its versions can be
compared."""
