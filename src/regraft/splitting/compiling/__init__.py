"""Compilation of regions: their models, the back ends, and the samples they are compared on."""
