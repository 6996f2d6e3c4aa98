"""Runs of a region in which sizes are symbols: each decision of Python code on a size is a guard.

PyTorch's symbolic sizes are no whole numbers to Python. Code that asks for their type would decide
without a guard: it gets the answers for whole numbers. A question for their text ends the run.
"""

from __future__ import annotations

import ast
import builtins
import functools
import logging
import math
import sys
import sysconfig
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any
from unittest import mock

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.overrides import TorchFunctionMode

from regraft.splitting.compiling.elements_by_number import ElementsByNumber
from regraft.splitting.compiling.tracing_replacements import RECURRENT_LAYERS
from regraft.splitting.program.residual import Region
from regraft.splitting.sampling.branch_exploration import RegionModule


@dataclass(frozen=True)
class SizeGuard:
    """A decision by sizes: a Python expression on the shapes of a region's inputs.

    of_operation: an operation of PyTorch decides so, and no Python code by any size in the guard.
    """

    text: str
    of_operation: bool


# What a guard may consist of, so that a host can compute it.
GUARD_FUNCTIONS = {"abs": abs, "max": max, "min": min, "math": math}
_NODES = (
    ast.Expression,
    ast.Compare,
    ast.BoolOp,
    ast.BinOp,
    ast.UnaryOp,
    ast.Subscript,
    ast.Attribute,
    ast.Name,
    ast.Constant,
    ast.Call,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)
TORCH_FOLDER = Path(torch.__file__).parent
_SITE_PACKAGES = Path(sysconfig.get_path("purelib"))
_STANDARD_LIBRARY = Path(sysconfig.get_path("stdlib"))
_REGRAFT = Path(__file__).parents[2]
# what runs with symbolic sizes on PyTorch's behalf
_LIBRARIES = ("sympy", "mpmath", "numpy", "typing_extensions.py")
_IMPLEMENTATION = (TORCH_FOLDER, _REGRAFT, *map(_SITE_PACKAGES.joinpath, _LIBRARIES))
_SQUEEZES = (torch.squeeze, torch.Tensor.squeeze, torch.Tensor.squeeze_)


def symbolic_guards(
    region: Region,
    module: RegionModule,
    sample: tuple[torch.Tensor, ...],
    axes: Mapping[str, Mapping[int, str]],
) -> Iterator[SizeGuard]:
    """Run the region with symbolic sizes, and yield the guards: the conditions by which Python code
    and operations decided, as they do for the sizes of the sample.

    axes: the dimensions that are symbols, by input. Raises whatever PyTorch raises for an operation
    that it cannot run without data, TypeError where code asks for the text of a symbolic size, and
    ValueError for a guard that a host cannot compute.
    """
    from torch._dispatch.python import enable_python_dispatcher
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    shape_env = ShapeEnv(duck_shape=False, specialize_zero_one=False)
    decisions = _Decisions(shape_env)
    mode = _mode_without_data(shape_env, decisions)
    inputs, sizes = _symbolic_inputs(region, sample, axes, mode)
    with (
        torch.no_grad(),
        _without_log(),
        _without_texts(),
        _sizes_as_whole_numbers(),
        without_fast_path(),
        _SequencesOfOneStep(),
        _OperationsApart(decisions),
        _DecidedSqueezes(),
        _SizesAsNumbers(),
        ElementsByNumber(),
        decisions.of_code(),
        mode,
        enable_python_dispatcher(),  # the C++ of composed operations may ask for numbers
    ):
        module(*inputs)
    print_expression = _printer_of(sizes)
    for place, guard in enumerate(shape_env.guards):
        text = print_expression(guard.expr)
        tree = ast.parse(text, mode="eval")
        names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
        is_plain = all(isinstance(node, _NODES) for node in ast.walk(tree))
        if not is_plain or not names <= {*region.inputs, *GUARD_FUNCTIONS}:
            raise ValueError(f"a guard that a host cannot compute: {text}")
        yield SizeGuard(text, decisions.are_of_operation(place, guard.expr))


def _mode_without_data(shape_env: Any, decisions: _Decisions) -> Any:
    """Return the mode of tensors without data, in which the decisions of operations are told
    apart."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    class Mode(FakeTensorMode):  # type: ignore[misc]
        """The mode of tensors without data, which tells the decisions of operations apart."""

        def __torch_dispatch__(
            self, func: Any, types: Any, args: Any = (), kwargs: Any = None
        ) -> Any:
            """Run an operation and return its result; its guards are noted as an operation's."""
            with decisions.of_operation():
                return super().__torch_dispatch__(func, types, args, kwargs or {})

    return Mode(shape_env=shape_env, allow_non_fake_inputs=True)


def _symbolic_inputs(
    region: Region,
    sample: tuple[torch.Tensor, ...],
    axes: Mapping[str, Mapping[int, str]],
    mode: Any,
) -> tuple[list[Any], dict[Any, str]]:
    """Return the region's inputs with symbols for sizes, and the text of the size for which each
    symbol stands, such as `x.shape[0]`."""
    inputs: list[Any] = []
    sizes: dict[Any, str] = {}
    for key, tensor in zip(region.inputs, sample, strict=True):
        if key in region.sizes:
            inputs.append(make_symbolic_number(mode.shape_env, key, int(tensor)))
            sizes[inputs[-1].node.expr] = key
            continue
        open_dims = axes.get(key, {})
        inputs.append(_without_data(tensor, open_dims, mode))
        shape = inputs[-1].shape
        sizes.update({shape[dim].node.expr: f"{key}.shape[{dim}]" for dim in open_dims})
    return inputs, sizes


def _without_data(tensor: torch.Tensor, open_dims: Collection[int], mode: Any) -> Any:
    """Return a tensor without data in the place of a tensor, with symbols for the sizes in some
    dimensions."""
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    dims = [
        DimDynamic.DYNAMIC if dim in open_dims else DimDynamic.STATIC for dim in range(tensor.dim())
    ]
    return mode.from_tensor(tensor, symbolic_context=StatelessSymbolicContext(dynamic_sizes=dims))


def _printer_of(sizes: Mapping[Any, str]) -> Callable[[Any], str]:
    """Return a function that prints an expression of symbols, with the texts of the sizes for which
    these stand."""
    from torch.utils._sympy.printers import PythonPrinter

    class Printer(PythonPrinter):  # type: ignore[misc]
        """Prints the size of an input in the place of its symbol."""

        def _print_Symbol(self, symbol: Any) -> str:
            """Return the text of the size for which a symbol stands, such as `x.shape[0]`."""
            return sizes[symbol]

    print_expression: Callable[[Any], str] = Printer().doprint
    return print_expression


class _Decisions:
    """Tells guards that operations of PyTorch make from those of Python code, during one run."""

    def __init__(self, shape_env: Any) -> None:
        self.shape_env = shape_env
        self.depth = 0  # of operations that run within each other
        self.places: set[int] = set()  # of the guards of operations
        self.symbols: set[Any] = set()  # by which Python code decides

    @contextmanager
    def of_operation(self) -> Iterator[None]:
        """In the `with` block note guards as those of an operation."""
        count = len(self.shape_env.guards)
        self.depth += 1
        try:
            yield
        finally:
            self.depth -= 1
            self.places.update(range(count, len(self.shape_env.guards)))

    @contextmanager
    def of_code(self) -> Iterator[None]:
        """In the `with` block note the sizes whose truth, or that of comparisons of which, Python
        code asks for; a guard that an operation has made before stands for such a question, too."""

        def note(decide: Any) -> Any:
            """Return `decide`, a `__bool__` of symbols, so that it notes them."""

            def decide_noted(symbol: Any) -> Any:
                """Note the symbols in an expression outside of operations; return its truth."""
                if self.depth == 0:
                    self.symbols |= symbol.node.expr.free_symbols
                return decide(symbol)

            return decide_noted

        with (
            mock.patch.object(torch.SymBool, "__bool__", note(torch.SymBool.__bool__)),
            mock.patch.object(torch.SymInt, "__bool__", note(torch.SymInt.__bool__)),
        ):
            yield

    def are_of_operation(self, place: int, expression: Any) -> bool:
        """Return whether the guard at a place, with its expression, is an operation's, and no
        Python code decided by a size in it."""
        return place in self.places and not expression.free_symbols & self.symbols


class _OperationsApart(TorchFunctionMode):  # type: ignore[misc]
    """Notes the guards of what PyTorch implements in C++ as those of operations: it consists of
    several operations at times, and has a substitute in Python."""

    def __init__(self, decisions: _Decisions) -> None:
        super().__init__()
        self.decisions = decisions

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function and return its result."""
        if isinstance(func, FunctionType):
            return func(*args, **(kwargs or {}))
        with self.decisions.of_operation():
            return func(*args, **(kwargs or {}))


def make_symbolic_number(shape_env: Any, key: str, number: int) -> torch.SymInt:
    """Return a symbol for a size that the region gets as an input, of which `number` is the value
    in the sample."""
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    source = ConstantSource(key)
    symbol = shape_env.create_symbol(
        number, source, DimDynamic.DYNAMIC, None, positive=None, do_not_specialize_zero_one=True
    )
    return shape_env.create_symintnode(symbol, hint=number, source=source)


@contextmanager
def without_fast_path() -> Iterator[None]:
    """In the `with` block let Transformer layers compute with ordinary operations, which run
    without data and have a meaning in ONNX, instead of torch's fused one."""
    fast_path = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast_path)


@contextmanager
def _without_log() -> Iterator[None]:
    """In the `with` block let PyTorch log no failure of an operation without data."""
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    with mock.patch.object(logger, "disabled", True):
        yield


@contextmanager
def _without_texts() -> Iterator[None]:
    """In the `with` block let a symbolic size that is converted to text raise TypeError: code could
    decide by the text without a guard."""

    def refuse(*_: Any) -> str:
        """Raise TypeError."""
        raise TypeError("a symbolic size as text")

    with (
        mock.patch.object(torch.SymInt, "__str__", refuse, create=True),
        mock.patch.object(torch.SymInt, "__repr__", refuse),
        mock.patch.object(torch.SymInt, "__format__", refuse, create=True),
    ):
        yield


@contextmanager
def _sizes_as_whole_numbers() -> Iterator[None]:
    """In the `with` block answer questions of the network's code for types as without symbols:
    `isinstance(size, int)` is True of a symbolic size, `type(size)` is int, and the type of a
    tensor without data is `torch.Tensor`. The code of libraries gets the true answers."""
    is_instance = builtins.isinstance

    def isinstance_of_size(value: Any, classes: Any) -> bool:
        """Return what `isinstance` returns; of a symbolic size in the network's code, what it
        returns for an int."""
        if is_instance(value, classes):
            return True
        is_size = _TYPE(value) is torch.SymInt and _is_of_network(sys._getframe(1).f_code)
        return is_size and is_instance(0, classes)

    with (
        mock.patch.object(builtins, "isinstance", isinstance_of_size),
        mock.patch.object(builtins, "type", _Type),
    ):
        yield


class _TypeOfType(type):
    """The type of `_Type`, which makes that behave as `type` with other answers."""

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        """Return the type of one argument (in the network's code int for a symbolic size, and
        torch.Tensor or Parameter for a tensor without data), or a new class of three; of a class
        derived from `_Type` a new class, as any metaclass does."""
        if cls is not _Type:
            return super().__call__(*arguments, **keywords)
        answer = _TYPE(*arguments, **keywords)
        if len(arguments) > 1 or (answer is not torch.SymInt and answer is not FakeTensor):
            return answer
        if not _is_of_network(sys._getframe(1).f_code):
            return answer
        if answer is torch.SymInt:
            return int
        is_parameter = _IS_INSTANCE(arguments[0], torch.nn.Parameter)
        return torch.nn.Parameter if is_parameter else torch.Tensor

    def __instancecheck__(cls, instance: Any) -> bool:
        """Return whether an object is a class, of a derived class whether it is an instance."""
        return (
            _IS_INSTANCE(instance, _TYPE) if cls is _Type else super().__instancecheck__(instance)
        )


class _Type(type, metaclass=_TypeOfType):
    """`type` as the network's code sees it while sizes are symbols."""


_TYPE, _IS_INSTANCE = type, isinstance


def _is_of_network(code: CodeType) -> bool:
    """Return whether code belongs to the network or its packages: not to PyTorch, the libraries it
    uses, Regraft, or Python and its standard library."""
    return _is_file_of_network(code.co_filename)


@functools.cache
def _is_file_of_network(name: str) -> bool:
    """Return whether the file of a name belongs to the network or its packages."""
    if name.startswith("<frozen"):
        return False
    file = Path(name)
    is_library = file.is_relative_to(_STANDARD_LIBRARY) and not file.is_relative_to(_SITE_PACKAGES)
    return not is_library and not any(map(file.is_relative_to, _IMPLEMENTATION))


class _DecidedSqueezes(TorchFunctionMode):  # type: ignore[misc]
    """Raises TypeError where a `squeeze` without dimensions leaves a size that values decide: the
    number of dimensions then depends on values."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Raise TypeError for such a `squeeze`; run any other function and return its result."""
        from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

        has_dim = len(args) > 1 or bool(kwargs)
        if func in _SQUEEZES and not has_dim and free_unbacked_symbols(args[0].shape):
            raise TypeError("a size that values decide is squeezed")
        return func(*args, **(kwargs or {}))


class _SequencesOfOneStep(TorchFunctionMode):  # type: ignore[misc]
    """Runs recurrent layers on the first step of their sequences: they would compute step by step,
    and decide by the number of steps."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return the results of a recurrent layer of padded sequences by their sizes, and of any
        other function what it returns; raise RuntimeError for sequences of no step, as torch."""
        if func not in _RECURRENT or len(args) != 9 or _TYPE(args[3]) is not bool:
            return func(*args, **(kwargs or {}))
        sequences, *options = args
        time = 1 if options[-1] else 0
        if sequences.shape[time] < 1:
            raise RuntimeError("a sequence of no step")
        output, *states = func(sequences.narrow(time, 0, 1), *options)
        by_time = output.transpose(0, time)
        steps = by_time.new_empty((sequences.shape[time], *by_time.shape[1:]))
        return (steps.transpose(0, time), *states)


_RECURRENT = frozenset(getattr(torch, name) for name in RECURRENT_LAYERS)


class _SizesAsNumbers(TorchFunctionMode):  # type: ignore[misc]
    """Runs functions of PyTorch that fill or compute with a number as well where that is a symbolic
    size, which they would ask for its value: the sizes of their results do not depend on it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return the function's result; where a function of `_FILLING` gets a symbolic size as its
        number, a result of the same sizes with 0 in the place of that number."""
        keywords = dict(kwargs or {})
        if func not in _FILLING or not any(map(_is_size, (*args, *keywords.values()))):
            return func(*args, **keywords)
        if func is torch.linspace:
            steps = args[2] if len(args) > 2 else keywords["steps"]
            return torch.empty(steps, dtype=keywords.get("dtype"))
        plain_options = {key: value for key, value in keywords.items() if not _is_size(value)}
        return func(*(0.0 if _is_size(value) else value for value in args), **plain_options)


_FILLING = frozenset(
    {torch.nan_to_num, torch.Tensor.nan_to_num, torch.nn.functional.pad, torch.linspace}
)


def _is_size(value: Any) -> bool:
    """Return whether an argument is a symbolic size."""
    return _TYPE(value) is torch.SymInt
