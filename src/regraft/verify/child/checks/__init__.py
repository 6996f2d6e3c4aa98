"""Inputs and conditions beyond those that a model was first run on: what a verdict's domain is made of."""
