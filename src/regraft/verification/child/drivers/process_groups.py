"""Start the groups of processes that layers of distributed models ask for, with one process."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any

import torch

_DEFAULT_GROUP = re.compile(r"[Dd]efault process group has not been initialized")
# Such as "model parallel group is not initialized", an assertion of the function that returns it.
_NAMED_GROUP = re.compile(r"^(\w+(?: \w+)*) group is not initialized")
LABEL = "process groups of one process"


def start_missing_groups(error: BaseException) -> bool:
    """Start the group of processes that an error says is not initialised, and return whether that
    was possible: the group of this process alone, and a library's own groups by its function
    `initialize_...`, which is looked for beside the function that raised the error.

    Layers that divide their weights between processes then hold whole weights. Errors in starting
    groups are raised.
    """
    named_group = _NAMED_GROUP.match(str(error))
    if not named_group and not _DEFAULT_GROUP.search(str(error)):
        return False
    if not torch.distributed.is_available():
        return False
    started = _start_default_group()
    if named_group:
        words = named_group[1].split()
        function = next(_starting_functions(words, error), None)
        if function is None:
            return False
        _call_for_one_process(function)
        return True
    return started


def _start_default_group() -> bool:
    """Start the default group with this process alone; return False where there is one already."""
    if torch.distributed.is_initialized():
        return False
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    return True


def _starting_functions(words: list[str], error: BaseException) -> Iterator[Callable[..., Any]]:
    """Yield the functions named `initialize_` and the last words of a group's name, the longest
    name first, of the module in which an error was raised."""
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    variables = traceback.tb_frame.f_globals if traceback is not None else {}
    for start in range(len(words)):
        function = variables.get("_".join(("initialize", *words[start:])))
        if inspect.isfunction(function):
            yield function


def _call_for_one_process(function: Callable[..., Any]) -> None:
    """Call a function with 1 for its required parameters, which are numbers of processes."""
    required = [
        parameter
        for parameter in inspect.signature(function).parameters.values()
        if parameter.default is parameter.empty and parameter.kind < parameter.VAR_KEYWORD
        if parameter.kind is not parameter.VAR_POSITIONAL
    ]
    function(**{parameter.name: 1 for parameter in required})
