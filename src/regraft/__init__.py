"""Regraft: make PyTorch models faster by rewriting their source, and prove every rewrite by running it."""

__version__ = "0.1.0"
