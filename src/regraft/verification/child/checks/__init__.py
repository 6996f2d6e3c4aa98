"""Make inputs and conditions beyond those of a model's first runs, which make up a verdict's
domain, and check what they decide."""
