"""Rewriting: a match becomes byte edits, or a reason why the place is left as it is."""
