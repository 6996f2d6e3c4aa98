"""The second back end: a network with decisions on values becomes static sub-networks and a
host."""

from regraft.splitting.build import split
from regraft.splitting.errors import Unsplittable
from regraft.splitting.loaded import Report, SplitModel, load_split

__all__ = ["Report", "SplitModel", "Unsplittable", "load_split", "split"]
