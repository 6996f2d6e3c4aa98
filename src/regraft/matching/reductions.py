"""Calls of reductions that are PyTorch's, rather than of an array of NumPy or Pandas."""

from __future__ import annotations

import ast
import re

from regraft.structure.module_structures import Module
from regraft.structure.values_and_nodes import Node

# Keywords of PyTorch's reductions that NumPy and Pandas do not have.
_KEYWORDS = frozenset({"dim", "keepdim", "unbiased"})


def is_call_of_torch(node: Node, module: Module) -> bool:
    """Return whether a node of a file is a call of a function of `torch`, of a method with a
    keyword that only PyTorch has, unless the file defines a method of this name, or of a method of
    what is known to be a tensor."""
    if not node.spelling.startswith("torch.Tensor."):
        return node.spelling.startswith("torch.")
    if node.args["input"].kind == "tensor":
        return True
    call = node.inner or node.expr
    keywords = call.keywords if isinstance(call, ast.Call) else []
    name = node.spelling.rpartition(".")[2].encode()
    is_own = re.search(rb"\bdef " + name + rb"\b", module.source.text) is not None
    return not is_own and any(keyword.arg in _KEYWORDS for keyword in keywords)
