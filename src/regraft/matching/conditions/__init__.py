"""The functions that decide the conditions of a rule's `where`, by what they are about."""
