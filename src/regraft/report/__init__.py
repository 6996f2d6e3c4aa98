"""Findings and verdicts as text for people and as JSON for machines."""
