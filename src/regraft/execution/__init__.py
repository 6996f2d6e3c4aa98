"""Runs of models, for every package that runs them: nested values, comparisons, random numbers."""
