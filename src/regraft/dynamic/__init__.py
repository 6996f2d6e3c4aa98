"""The second back end: a network with decisions on values becomes static sub-networks and a host."""

from regraft.dynamic.build import split
from regraft.dynamic.errors import Unsplittable
from regraft.dynamic.loaded import Report, SplitModel, load_split

__all__ = ["Report", "SplitModel", "Unsplittable", "load_split", "split"]
