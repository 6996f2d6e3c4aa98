"""Comparison of the split network with the original."""
