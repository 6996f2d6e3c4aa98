"""What the host adds to a transition: the split network's time without that of ONNX Runtime,
divided by its calls.

Also what ONNX Runtime alone takes where inputs and outputs are bound (`io_binding`) instead of
given to `run`.

Usage: python benchmarks/dynamic/overhead.py
"""

from __future__ import annotations

import time

import torch
from torch import nn

import regraft


class Tower(nn.Module):
    """Forty tiny blocks, each of which may be the last."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([nn.Linear(4, 4) for _ in range(40)])

    def forward(self, x):
        for number, block in enumerate(self.blocks):
            x = torch.tanh(block(x))
            if x.sum() > 3.9:
                return x, number
        return x, -1


def fastest(call, repeats: int = 2000) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    made = regraft.split(Tower().eval(), [(torch.randn(1, 4),)], unseen="raise", cache=False)
    host, x = made.host, torch.randn(1, 4).numpy()
    calls = []
    run = host.run

    def noted(number, *values):
        calls.append(
            (
                host.regions[number][0],
                {key: values[place] for key, place in host.regions[number][1]},
            )
        )
        return run(number, *values)

    host.run = noted
    host.forward(x)
    del host.run

    def bare() -> None:
        for session, values in calls:
            session(None, values)

    sessions = [(run.__self__, values) for run, values in calls]
    bindings = [
        (one, one.io_binding(), values, [out.name for out in one.get_outputs()])
        for one, values in sessions
    ]

    def bound() -> None:
        for session, binding, values, outputs in bindings:
            binding.clear_binding_inputs()
            binding.clear_binding_outputs()
            for key, value in values.items():
                binding.bind_cpu_input(key, value)
            for output in outputs:
                binding.bind_output(output, "cpu")
            session.run_with_iobinding(binding)
            binding.copy_outputs_to_cpu()

    whole, alone = fastest(lambda: host.forward(x)), fastest(bare)
    print(
        f"{len(calls)} transitions: {whole * 1e6:.0f} us, ONNX Runtime alone {alone * 1e6:.0f}"
        " us, ",
        end="",
    )
    print(f"the host {(whole - alone) / len(calls) * 1e6:.2f} us a transition; ", end="")
    print(f"ONNX Runtime with io_binding {fastest(bound) * 1e6:.0f} us")


if __name__ == "__main__":
    main()
