"""`regraft.split`: a network that decides by values of tensors becomes static sub-networks and a
host, a Python program that calls them."""

from regraft.splitting.errors import Unsplittable
from regraft.splitting.loading import Report, SplitModel, load_split
from regraft.splitting.split_call import split

__all__ = ["Report", "SplitModel", "Unsplittable", "load_split", "split"]
