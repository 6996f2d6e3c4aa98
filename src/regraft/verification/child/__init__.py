"""The child process: everything in this package may import torch and may be killed at any
moment."""
