"""Bring the model files to life: every class of a file side by side, on inputs of two sizes."""

from typing import Any

import torch
from torch import nn


class Side(nn.Module):
    """Runs each part on the inputs that are meant for it and returns all results by name."""

    def __init__(self, parts: Any, wanted: Any) -> None:
        super().__init__()
        self.parts = nn.ModuleDict(parts)
        self.wanted = wanted

    def forward(self, **inputs: Any) -> Any:
        return {
            name: part(*(inputs[key] for key in self.wanted[name]))
            for name, part in self.parts.items()
        }


def build(module: Any, wanted: Any) -> Any:
    return Side({name: getattr(module, name)() for name in wanted}, wanted)


def states(batch: Any, length: Any) -> Any:
    generator = torch.Generator().manual_seed(batch)
    return torch.randn(batch, length, 32, generator=generator)


def attention(module: Any) -> Any:
    wanted = {
        "SelfAttention": ("x", "mask"),
        "CausalAttention": ("x",),
        "CrossAttention": ("x", "memory", "padding"),
        "GroupedAttention": ("x",),
        "WindowAttention": ("x",),
    }
    calls = []
    for batch, length in ((1, 5), (3, 8)):
        padding = torch.zeros(batch, length + 2, dtype=torch.bool)
        padding[-1, -2:] = True
        mask = torch.zeros(batch, 1, 1, length)
        mask[-1, ..., -2:] = torch.finfo(torch.float16).min
        x, memory = states(batch, length), states(batch, length + 2)
        calls.append({"x": x, "mask": mask, "memory": memory, "padding": padding})
    calls.append({**calls[-1], "mask": None})
    return build(module, wanted), calls


def layers(module: Any) -> Any:
    names = ("PreNorm", "RMSNorm", "GatedMLP", "Configured", "TwoDropouts", "Auxiliary")
    wanted = {
        "SelfOutput": ("x", "residual"),
        "Routed": ("x", "index"),
        **dict.fromkeys(names, ("x",)),
    }
    calls = []
    for batch, length in ((1, 5), (3, 8)):
        index = torch.arange(batch * length).reshape(batch, length) % 3
        calls.append(
            {
                "x": states(batch, length),
                "residual": states(batch + 7, length)[:batch],
                "index": index,
            }
        )
    return build(module, wanted), calls


def vision(module: Any) -> Any:
    names = ("ConvBN", "Bottleneck", "PreActivation", "RunningScale", "SqueezeExcite", "Pyramid")
    generator = torch.Generator().manual_seed(0)
    calls = [{"x": torch.randn(size, generator=generator)} for size in ((2, 8, 6, 6), (3, 8, 9, 7))]
    return build(module, dict.fromkeys(names, ("x",))), calls


def state(module: Any) -> Any:
    names = ("TwoHeads", "Positions", "Gate", "Mixer", "Flattened", "Smooth", "Noisy")
    wanted = {"TiedHead": ("ids",), **dict.fromkeys(names, ("x",))}
    calls = [
        {"x": states(batch, length), "ids": torch.arange(batch * length).view(batch, length) % 29}
        for batch, length in ((1, 5), (3, 8))
    ]
    return build(module, wanted), calls
