"""The second back end: a network with decisions on values becomes static sub-networks and a host."""

from regraft.dynamic.build import Report, SplitModel, load_split, split
from regraft.dynamic.errors import Unsplittable

__all__ = ["Report", "SplitModel", "Unsplittable", "load_split", "split"]
