"""Matching: where the value graph of a body has the pattern of a rule, and under which
conditions."""
