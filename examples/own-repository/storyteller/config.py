"""Sizes of the model."""

from dataclasses import dataclass


@dataclass
class Config:
    vocabulary: int = 32000
    width: int = 512
    layers: int = 4
    heads: int = 8
    hidden: int = 1408
    context: int = 1024
    dropout: float = 0.0
    eps: float = 1e-6
