"""Drivers: ways to build and call the definitions of an unknown file, so that its versions can be
compared."""
