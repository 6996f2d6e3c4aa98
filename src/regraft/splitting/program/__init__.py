"""The residual program: its steps and regions, values in both worlds, and forms of source."""
