"""Specialisation of `forward` with its concrete module and examples to a residual program."""
