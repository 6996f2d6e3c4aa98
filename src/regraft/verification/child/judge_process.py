"""Compare results in a process that never imports the code under test.

The process is forked before the first import of a model. Results travel to it as raw bytes with
their format and shape, never pickled; the functions that read these bytes are bound here, before
code under test can replace them.
"""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import socket
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

import torch

from regraft.verification.child.call_outcomes import Outcome, Run
from regraft.verification.child.comparison_terms import Difference, Largest, Rigour
from regraft.verification.child.outcome_comparison import DescribedError, describe_error, judge

_PLAIN = frozenset({bool, int, float, str, type(None)})
_ALIGNMENT = 16
_LENGTH = struct.Struct("<Q")
_MAPPINGS = ("outputs", "repeated", "gradients", "repeated_gradients", "second", "noted")
_NAMES = ("overwritten", "drew", "shared")
_ERRORS = ("error", "backward_error")
_DTYPES = {str(value): value for value in vars(torch).values() if isinstance(value, torch.dtype)}
_WITHOUT_NUMPY = frozenset(
    dtype for name, dtype in _DTYPES.items() if "bfloat16" in name or "float8" in name
)

_detach, _reshape, _view, _numpy = (
    torch.Tensor.detach,
    torch.Tensor.reshape,
    torch.Tensor.view,
    torch.Tensor.numpy,
)
_clone, _CONTIGUOUS = torch.Tensor.clone, torch.contiguous_format
_to_dense, _dequantize, _cpu = torch.Tensor.to_dense, torch.Tensor.dequantize, torch.Tensor.cpu
_resolve_conj, _resolve_neg = torch.Tensor.resolve_conj, torch.Tensor.resolve_neg
_raw_function = torch._C.DisableTorchFunctionSubclass
_sendall, _recv_into = socket.socket.sendall, socket.socket.recv_into
_Buffer = bytes | bytearray | memoryview


class _Channel:
    """An end of a connection between the two processes, for messages of any length: each is sent
    after its length (8 bytes)."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end

    def send(self, *parts: _Buffer) -> None:
        """Send a message in parts, without copying them together."""
        _sendall(self._end, _LENGTH.pack(sum(map(len, parts))))
        for part in parts:
            _sendall(self._end, part)

    def receive(self) -> bytearray:
        """Return the next message; raises EOFError where the other end is closed."""
        (length,) = _LENGTH.unpack(self._receive(_LENGTH.size))
        return self._receive(length)

    def _receive(self, length: int) -> bytearray:
        """Return the next `length` bytes; raises EOFError where the other end is closed."""
        buffer = bytearray(length)
        remaining = memoryview(buffer)
        while remaining:
            count = _recv_into(self._end, remaining)
            if not count:
                raise EOFError("the other process has ended")
            remaining = remaining[count:]
        return buffer

    def close(self) -> None:
        """Close this end."""
        self._end.close()


class Judge:
    """Compares outcomes in a separate process, forked at construction, where the system can fork;
    else in this process."""

    def __init__(self) -> None:
        """Fork the separate process and connect to it, where the system can fork."""
        self._channel: _Channel | None = None
        if hasattr(os, "fork"):
            verifier_end, judge_end = map(_Channel, socket.socketpair())
            process = multiprocessing.get_context("fork").Process(
                target=_serve, args=(judge_end, verifier_end), daemon=True
            )
            process.start()
            judge_end.close()
            self._channel = verifier_end

    @property
    def isolated(self) -> bool:
        """Return whether comparisons run in a separate process."""
        return self._channel is not None

    def __call__(
        self,
        original: Outcome,
        changed: Outcome,
        truth: Run,
        largest: Largest,
        rigour: Rigour,
        *,
        jittered: Run = Outcome,
        with_errors: bool = False,
    ) -> Difference | None:
        """Return the difference that `outcome_comparison.judge` returns for two outcomes, or None,
        and add to `largest`. `truth` and `jittered` run in this process, only when they are asked
        for. Raises EOFError or OSError where the separate process has ended."""
        if self._channel is None:
            return judge(
                original,
                changed,
                truth,
                largest,
                rigour,
                jittered=jittered,
                with_errors=with_errors,
            )
        runs: dict[str, Callable[[], Outcome]] = {"truth": truth, "jittered": jittered}
        request = {"rigour": asdict(rigour), "with_errors": with_errors}
        self._channel.send(*_pack(request, original=original, changed=changed))
        while True:
            answer = json.loads(self._channel.receive())
            if "run" not in answer:
                break
            self._channel.send(*_pack({}, outcome=runs[answer["run"]]()))
        for dtype, (absolute, relative) in answer["largest"].items():
            largest.add(dtype, absolute, relative)
        for dtype, errors_by_path in answer["errors"].items():
            for path, errors in errors_by_path.items():
                largest.add_errors(dtype, path, *errors)
        return Difference(*answer["difference"]) if answer["difference"] else None


def _serve(channel: _Channel, verifier_end: _Channel) -> None:
    """Answer comparisons that arrive on `channel` until the verifier's end of it is closed, then
    end this process. Never returns; an error in a comparison ends the process as well."""
    verifier_end.close()
    torch.set_num_threads(1)
    while True:
        try:
            request, outcomes = _unpack(channel.receive())
        except (EOFError, OSError):
            os._exit(0)
        answer = _answer(request, outcomes, channel)
        channel.send(json.dumps(answer).encode())


def _answer(
    request: Mapping[str, Any], outcomes: Mapping[str, Outcome], channel: _Channel
) -> dict[str, Any]:
    """Return the answer to a comparison: under `difference` the fields of the difference, or None,
    under `largest` the largest differences, and under `errors` mean errors; further runs are
    requested on the channel."""

    @functools.cache
    def run(name: str) -> Outcome:
        """Return the outcome of a further run ("truth" or "jittered") by the other process."""
        channel.send(json.dumps({"run": name}).encode())
        return _unpack(channel.receive())[1]["outcome"]

    largest = Largest()
    difference = judge(
        outcomes["original"],
        outcomes["changed"],
        functools.partial(run, "truth"),
        largest,
        Rigour(**request["rigour"]),
        jittered=functools.partial(run, "jittered"),
        with_errors=request["with_errors"],
    )
    return {
        "difference": _field_values(difference) if difference is not None else None,
        "largest": {
            name: (largest.absolute[name], largest.relative[name]) for name in largest.absolute
        },
        "errors": largest.errors,
    }


def _field_values(difference: Difference) -> list[Any]:
    """Return the values of a difference's fields in order."""
    return [getattr(difference, entry.name) for entry in fields(difference)]


def _pack(header: Mapping[str, Any], **outcomes: Outcome) -> Iterable[_Buffer]:
    """Return the parts of a message: the length of its header (8 bytes), the header as JSON with
    the outcomes under "outcomes", then the bytes of all tensors, each aligned to `_ALIGNMENT`
    bytes."""
    tensor_bytes: list[_Buffer] = []
    size = 0

    def pack_leaf(value: Any) -> Any:
        """Return a plain value as it is, type and text of an object, or the place of a tensor's
        bytes, which are added to the message."""
        nonlocal size
        if type(value) in _PLAIN:
            return value
        if not isinstance(value, torch.Tensor):
            return {"type": type(value).__qualname__, "text": repr(value)}
        dtype, shape, content = _raw_bytes(value)
        padding = -len(content) % _ALIGNMENT
        tensor_bytes.append(content)
        if padding:
            tensor_bytes.append(bytes(padding))
        size += len(content) + padding
        location = {"dtype": dtype, "shape": shape, "at": size - len(content) - padding}
        kinds = (str(value.dtype), str(value.device), str(value.layout))
        return (
            location if kinds == (dtype, "cpu", "torch.strided") else {**location, "kinds": kinds}
        )

    packed = {name: _pack_outcome(outcome, pack_leaf) for name, outcome in outcomes.items()}
    encoded_header = json.dumps({**header, "outcomes": packed}).encode()
    encoded_header += b" " * (-(len(encoded_header) + _LENGTH.size) % _ALIGNMENT)
    return [_LENGTH.pack(len(encoded_header)), encoded_header, *tensor_bytes]


def _pack_outcome(outcome: Outcome, pack_leaf: Callable[[Any], Any]) -> dict[str, Any]:
    """Return the compared fields of an outcome as JSON values; `pack_leaf` turns a tensor or
    another value into JSON, and an error becomes its text."""
    packed: dict[str, Any] = {name: list(getattr(outcome, name)) for name in _NAMES}
    for name in _MAPPINGS:
        values = getattr(outcome, name)
        packed[name] = (
            None if values is None else [[path, pack_leaf(value)] for path, value in values.items()]
        )
    for name in _ERRORS:
        error = getattr(outcome, name)
        packed[name] = None if error is None else describe_error(error)
    return packed


def _raw_bytes(tensor: Any) -> tuple[str, list[int], _Buffer]:
    """Return the format, shape and bytes of a dense copy of a tensor on the CPU, by the functions
    bound at import. Without bytes, a meta tensor has the format uint8 and the shape [0]."""
    with _raw_function():
        value = _detach(tensor)
        if value.is_meta:
            return str(torch.uint8), [0], b""
        value = _to_dense(value) if value.layout != torch.strided else value
        value = _cpu(_dequantize(value) if value.is_quantized else value)
        shape, dtype = list(value.shape), value.dtype
        flat = _reshape(_resolve_neg(_resolve_conj(value)), (-1,))
        if dtype in _WITHOUT_NUMPY:
            # a contiguous tensor of one element may have any stride, of which `view` takes 1 only
            flat = _view(_clone(flat, memory_format=_CONTIGUOUS), torch.uint8)
        array = _numpy(flat)
        contiguous = array.flags.c_contiguous
        return str(dtype), shape, memoryview(array.view("u1")) if contiguous else array.tobytes()


def _unpack(buffer: bytearray) -> tuple[dict[str, Any], dict[str, Outcome]]:
    """Return the header, without its "outcomes", and the outcomes by name of a message that `_pack`
    made. Tensors share memory with the message."""
    (length,) = _LENGTH.unpack_from(buffer)
    header = json.loads(buffer[_LENGTH.size : _LENGTH.size + length])
    start = _LENGTH.size + length

    def unpack_leaf(entry: Any) -> Any:
        """Return the value of an entry that `pack_leaf` made; an object becomes a `_ValueText`."""
        if not isinstance(entry, dict):
            return entry
        if "text" in entry:
            return _ValueText(entry["type"], entry["text"])
        return _unpack_tensor(buffer, start + entry["at"], _DTYPES[entry["dtype"]], entry["shape"])

    outcomes = {
        name: _unpack_outcome(packed, unpack_leaf)
        for name, packed in header.pop("outcomes").items()
    }
    return header, outcomes


def _unpack_outcome(packed: Mapping[str, Any], unpack_leaf: Callable[[Any], Any]) -> Outcome:
    """Return an outcome from JSON values. A tensor that is not dense on the CPU gets a further leaf
    "kind of PATH" with its format, device and layout; errors become DescribedError."""
    values: dict[str, Any] = {name: tuple(packed[name]) for name in _NAMES}
    for name in _MAPPINGS:
        if packed[name] is None:
            values[name] = None
            continue
        values[name] = {}
        for path, entry in packed[name]:
            values[name][path] = unpack_leaf(entry)
            if isinstance(entry, dict) and "kinds" in entry:
                values[name][f"kind of {path}"] = ", ".join(entry["kinds"])
    for name in _ERRORS:
        values[name] = None if packed[name] is None else DescribedError(packed[name])
    return Outcome(**values)


def _unpack_tensor(buffer: bytearray, start: int, dtype: torch.dtype, shape: list[int]) -> Any:
    """Return the tensor of a shape whose bytes start at an offset of `buffer`; the tensor shares
    the memory of the buffer, unless it is empty."""
    count = 1
    for size in shape:
        count *= size
    if not count:
        return torch.empty(shape, dtype=dtype)
    return torch.frombuffer(buffer, dtype=dtype, count=count, offset=start).reshape(shape)


class _ValueText(str):
    """The text and type of a value that is neither a tensor nor a plain number or string; texts are
    equal where both are."""

    __slots__ = ()

    def __new__(cls, kind: str, text: str) -> _ValueText:
        """Return the text of a value with its type behind it in brackets."""
        return super().__new__(cls, f"{text} ({kind})")
