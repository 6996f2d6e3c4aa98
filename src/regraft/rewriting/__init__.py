"""Rewriting: a match becomes byte edits, or a reason why the place stays as it is."""
