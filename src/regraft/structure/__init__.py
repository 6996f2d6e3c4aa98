"""Structure: a model's source as SSA values, nodes with guards, and layers."""

from regraft.structure.module_structures import Module
from regraft.structure.values_and_nodes import Body, Layer, Node, Structure, Value

__all__ = ["Body", "Layer", "Module", "Node", "Structure", "Value"]
