"""Rewriting a model in memory: the same instances with the rewritten methods of their classes."""

from regraft.live.optimization import DifferentConditions, NothingOptimized, optimize, rewrite
from regraft.live.optimization_result import Change, Optimization, Unchanged
from regraft.live.rewritten_classes import restore
from regraft.live.stored_model import NotPicklable
from regraft.live.watching import CallNotRecorded, watch

__all__ = [
    "CallNotRecorded",
    "Change",
    "DifferentConditions",
    "NotPicklable",
    "NothingOptimized",
    "Optimization",
    "Unchanged",
    "optimize",
    "restore",
    "rewrite",
    "watch",
]
