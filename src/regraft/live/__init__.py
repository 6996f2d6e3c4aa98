"""Rewriting a model in memory: the same instances with the rewritten methods of their classes."""

from regraft.live.classes import restore
from regraft.live.example import NotPicklable
from regraft.live.model import DifferentConditions, NothingOptimized, optimize, rewrite
from regraft.live.outcome import Change, Optimization, Unchanged

__all__ = [
    "Change",
    "DifferentConditions",
    "NotPicklable",
    "NothingOptimized",
    "Optimization",
    "Unchanged",
    "optimize",
    "restore",
    "rewrite",
]
