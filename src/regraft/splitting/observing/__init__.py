"""Observation of the original network: what a call reads, draws, changes and stores."""
