"""What runs in the child process: everything here may import torch and may be killed at any moment."""
