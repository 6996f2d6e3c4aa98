"""Calls of reductions that are PyTorch's, rather than of an array of NumPy or Pandas."""

from __future__ import annotations

import ast

from regraft.structure.model import Node

# Keywords of PyTorch's reductions that NumPy and Pandas do not have.
_KEYWORDS = frozenset({"dim", "keepdim", "unbiased", "correction"})


def is_call_of_torch(node: Node) -> bool:
    """Return whether a node is a call of a function of `torch`, of a method with a keyword that
    only PyTorch has, or of a method of what is known to be a tensor."""
    if not node.spelling.startswith("torch.Tensor."):
        return node.spelling.startswith("torch.")
    call = node.inner or node.expr
    keywords = call.keywords if isinstance(call, ast.Call) else []
    has_keyword = any(keyword.arg in _KEYWORDS for keyword in keywords)
    return has_keyword or node.args["input"].kind == "tensor"
