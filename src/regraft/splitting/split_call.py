"""A call of `regraft.split`: its options, the cache, and the choice among compilers."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from regraft.execution.threads import torch_threads
from regraft.report.terminal import Watch, ignore
from regraft.splitting.build_options import Options, check_options, chosen_compilers
from regraft.splitting.carried_state import CarriedState
from regraft.splitting.compiling.batch_regions import has_samples
from regraft.splitting.compiling.engine_settings import engine_settings, given_settings
from regraft.splitting.emitting.artefact_protocol import Emitter, SplitNetwork
from regraft.splitting.emitting.split_directory import SplitModel
from regraft.splitting.errors import Unsplittable
from regraft.splitting.loading import load_split
from regraft.splitting.nested_arguments import check_unchanged
from regraft.splitting.network import Network, add_sizes, bind_network
from regraft.splitting.network_cache import find_network, make_key, store_network
from regraft.splitting.pipeline import build
from regraft.splitting.preconditions import STATE_REMEDY
from regraft.splitting.program.residual_expressions import file_of_wrapped
from regraft.splitting.sampling.dynamic_sizes import DynamicSize, read_dynamic
from regraft.splitting.stateful_wrapper import carry_state, refuse_both
from regraft.splitting.states_between_calls import (
    copy_network,
    depends_on_first_call,
    run_and_list_changes,
)


def split(
    model: torch.nn.Module,
    example_inputs: list[Any],
    compiler: str = "onnxruntime",
    unseen: str = "refuse",
    cache: bool = True,
    single_file: bool = False,
    batched: bool = False,
    measure: bool = True,
    watch: Watch = ignore,
    threads: int | None = None,
    providers: Sequence[str] | None = None,
    dynamic: Mapping[str, Mapping[int, tuple[int, int]]] | None = None,
) -> SplitNetwork:
    """Split `model`, following every side of every decision from `example_inputs` (tuples or dicts
    of arguments).

    compiler: "onnxruntime", "openvino" or "aotinductor"; what it cannot take or gets wrong stays
    eager, and is listed. "auto" builds the network with each one that is installed, takes that
    which is the fastest on the example calls, and reports the times of all. unseen: what becomes of
    a side that no checked input takes. "refuse": the network is not split. "raise": the host raises
    RuntimeError where it would be taken; the report lists it. cache: whether a network that was
    split before, with equal weights, sources, calls and versions, is taken from the user's cache
    directory. single_file: give one ONNX file, with `If` and `Loop` in the place of the host; what
    ONNX cannot express is refused. batched: the result takes any number of samples along the first
    dimension of its inputs, which is 1 in the examples, and gives a list: for each sample what the
    network gives for it alone. measure: a sub-network that is slower than torch here (by a fifth
    and 50 us, one thread) stays eager, so that the host needs torch; not in single files and
    batches. watch: is called with what is done ("compiling region 2 of 5"). threads: those of one
    operation, 1 by default, for ONNX Runtime and OpenVINO. providers: the execution providers of
    ONNX Runtime, in the order in which they are asked, the CPU's by default. Both are recorded, and
    `load_split` can replace them. dynamic: the sizes that dimensions may have, `{"x": {0: (1,
    512)}}`, in the place of example calls of several sizes: the network is split for all of them,
    and raises ValueError for others. Raises ValueError for unknown options and those that do not go
    together, Unsplittable with file, line and reason where the network cannot be split or the
    result differs.
    """
    started = time.monotonic()
    check_options(compiler, unseen, single_file, batched, measure)
    artefact = "file" if single_file else "batches" if batched else "directory"
    settings = engine_settings(threads, providers)
    network = bind_network(model, example_inputs)
    sizes = read_dynamic(dynamic or {}, network.calls)
    stated = given_settings(threads, providers)
    choices = [
        Options(choice, unseen, artefact, measure, settings, tuple(map(str, sizes)))
        for choice in chosen_compilers("onnxruntime" if single_file else compiler, stated)
    ]
    if batched:
        require_one_sample(network, sizes)
    key = key_of(network, model, choices) if cache else None
    stored = load_stored(key, choices[0].emitter)
    if stored is not None:
        return stored
    carried = (
        carry_state(model, network.path, network.original_calls)
        if artefact == "directory"
        else None
    )
    # threads: those of the compiled sub-networks; more would wait for one another in small
    # operations
    with torch_threads(settings.threads):
        if carried is None:
            return split_stateless(network, sizes, key, choices, started, watch)
        try:
            return split_with_states(*carried, dynamic or {}, choices, started, watch)
        except Unsplittable as with_states:
            try:
                return split_stateless(network, sizes, key, choices, started, watch)
            except Unsplittable as refused:
                raise refuse_both(refused, with_states) from with_states


def split_with_states(
    wrapper: torch.nn.Module,
    calls: list[dict[str, Any]],
    states: CarriedState,
    dynamic: Mapping[str, Mapping[int, tuple[int, int]]],
    choices: list[Options],
    started: float,
    watch: Watch,
) -> SplitNetwork:
    """Return the split network that keeps its states from call to call; it is not cached.

    wrapper, calls, states: those of `carry_state`. The others: as in `split` and `build_fastest`.
    Raises Unsplittable.
    """
    network = bind_network(wrapper, calls)
    network = replace(network, path=file_of_wrapped(network.path))
    sizes = read_dynamic(dynamic, network.calls)
    result = build_fastest(add_sizes(network, sizes), choices, started, watch)
    assert isinstance(result, SplitModel)
    result.packed = network.packed
    not_left = tuple(
        left for left in result.report.not_left if left.removeprefix("network.") not in states.names
    )
    result.replace_report(replace(result.report, not_left=not_left, carried=tuple(states.names)))
    result.carry(states)
    return result


def split_stateless(
    network: Network,
    sizes: list[DynamicSize],
    key: str | None,
    choices: list[Options],
    started: float,
    watch: Watch,
) -> SplitNetwork:
    """Return the split network whose calls leave nothing to the next one, and store it in the cache
    under the key, if there is one. The others: as in `build_fastest`. Raises Unsplittable, also
    where the first calls leave to later ones what depends on their inputs."""
    keeps_first_call = depends_on_earlier_calls(network)
    if network.packed is not None:
        check_unchanged(network.original, network.path, network.original_calls, network.packed)
    result = build_fastest(add_sizes(network, sizes), choices, started, watch)
    if keeps_first_call:
        reason = "the results may depend on the inputs of earlier calls"
        raise Unsplittable(*network.place, f"{reason}; {STATE_REMEDY}")
    result.packed = network.packed
    if key is not None:
        store_network(key, result.directory)
    return result


def depends_on_earlier_calls(network: Network) -> bool:
    """Return whether a network keeps something of its first call that changes the results of later
    ones, or may: it cannot be copied, and its first call stores something. False for one that
    fails."""
    model, calls = network.original, network.original_calls
    with contextlib.suppress(Exception):
        try:
            copy_network(model)
        except Exception:  # noqa: BLE001 - whatever an attribute raises that cannot be copied
            return bool(run_and_list_changes(model, calls[:1]))
        return depends_on_first_call(model, calls)
    return False


def build_fastest(
    network: Network, choices: list[Options], started: float, watch: Watch
) -> SplitNetwork:
    """Split a bound network with each of the options, which differ in their compiler, and return
    the fastest result, whose report names the times of all; of one only, its result as it is.

    Raises Unsplittable, for the first of them, where the network cannot be split with any.
    """
    if len(choices) == 1:
        return build(network, choices[0], started, watch)
    results: list[tuple[float, SplitNetwork]] = []
    trials: list[dict[str, Any]] = []
    errors: list[Unsplittable] = []
    for options in choices:
        name = options.compiler.name
        try:
            result = build(network, options, started, functools.partial(say_for, watch, name))
        except Unsplittable as problem:
            errors.append(problem)
            trials.append({"compiler": name, "seconds": None, "reason": str(problem)})
            continue
        seconds, _ = result.report.times or (math.inf, math.inf)
        results.append((seconds, result))
        trials.append({"compiler": name, "seconds": seconds, "reason": ""})
    if not results:
        raise errors[0]
    _, fastest = min(results, key=lambda pair: pair[0])
    if isinstance(fastest, SplitModel):  # single files are for one compiler
        fastest.replace_report(replace(fastest.report, compilers=tuple(trials)))
    return fastest


def say_for(watch: Watch, name: str, part: str) -> None:
    """Call `watch` with what is done with the compiler `name`."""
    watch(f"{name}: {part}")


def require_one_sample(network: Network, sizes: list[DynamicSize]) -> None:
    """Raise Unsplittable unless every tensor of the first example call is one sample, ValueError
    where the dimension of the samples has a range of sizes."""
    if any(size.dim == 0 for size in sizes):
        raise ValueError("dimension 0 is that of the samples in batches, which takes any size")
    call = network.calls[0]
    for key in network.tensor_inputs:
        if not has_samples(call[key]):
            shape = tuple(call[key].shape)
            remedy = (
                f"give one sample, such as {key}[:1]"
                if shape
                else f"give it as {key}.reshape(1), or as a plain number where it never changes"
            )
            reason = (
                "batches need example calls of one sample, inputs whose first dimension is 1;"
                f" argument {key} is of shape {shape}: {remedy}"
            )
            raise Unsplittable(*network.place, reason)


def key_of(network: Network, model: torch.nn.Module, choices: list[Options]) -> str | None:
    """Return the key of a network with its options in the cache; None where it has none. The
    network stays as it is: a copy of it is called."""
    words = tuple(word for options in choices for word in options.in_words)
    with contextlib.suppress(Exception):  # where it cannot be copied, it is called itself
        model = copy_network(model)
    return make_key(model, network.original_calls, words)


def load_stored(key: str | None, emitter: Emitter) -> SplitNetwork | None:
    """Return the network of this key in the cache; None without a key, and where the network is not
    there or is damaged."""
    directory = find_network(key) if key is not None else None
    if directory is not None:
        with contextlib.suppress(ValueError, OSError, KeyError):
            return load_split(directory / emitter.entry)
    return None
