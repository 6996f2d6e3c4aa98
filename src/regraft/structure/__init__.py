"""Structure: a model's source as SSA values, nodes with guards, and layers."""

from regraft.structure.model import Body, Layer, Node, Structure, Value
from regraft.structure.module import Module

__all__ = ["Body", "Layer", "Module", "Node", "Structure", "Value"]
