"""Runs of models, for every package that runs them: nested values and comparisons."""
