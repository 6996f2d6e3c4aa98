"""Runs of the residual program in torch, which record samples of regions and decisions."""
