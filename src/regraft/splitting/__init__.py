"""The second back end: a network with decisions on values becomes static sub-networks and a
host."""

from regraft.splitting.errors import Unsplittable
from regraft.splitting.loading import Report, SplitModel, load_split
from regraft.splitting.pipeline import split

__all__ = ["Report", "SplitModel", "Unsplittable", "load_split", "split"]
