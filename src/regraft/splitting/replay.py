"""Inputs on which a split network differed from the original, run again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regraft.splitting.checking.original_network import attempt
from regraft.splitting.checking.result_difference import difference
from regraft.splitting.checking.saved_inputs import INPUTS, NETWORK
from regraft.splitting.emitting.single import FILE, SingleFile
from regraft.splitting.loading import load_split
from regraft.splitting.network import bind_network
from regraft.splitting.stateful_wrapper import carry_state


def replay(model: torch.nn.Module, calls: list[Any], folder: Path) -> str:
    """Run the inputs of a folder that `save_inputs` wrote with the original and the split network,
    and return how the results differ; "" where they do not.

    calls: the example calls that the network was split with. Raises OSError where the folder does
    not have the files, ValueError where they are damaged.
    """
    call = torch.load(folder / INPUTS, weights_only=True)
    path = folder / NETWORK / FILE
    split = SingleFile(path) if path.is_file() else load_split(folder / NETWORK)
    split.packed = None  # the inputs are taken apart
    network = bind_network(model, calls)
    if call.keys() != network.calls[0].keys():  # they hold states, too
        carried = carry_state(model, network.path, network.original_calls)
        network = bind_network(*carried[:2]) if carried is not None else network
    with torch.no_grad():
        expected = attempt(lambda: network.model(**call))
    return difference(attempt(lambda: split(**call)), expected)
