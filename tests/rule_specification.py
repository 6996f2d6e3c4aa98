"""Run a rule's source fragment against its target on random inputs, from nothing but the rule's
text.

Sizes and values of its variables are searched for: a choice counts where the source accepts it.
What a rule says about a variable (the kernel's annotation where it is passed, `scalar`, `present`)
narrows the choice.
"""

from __future__ import annotations

import builtins
import functools
import importlib
import inspect
import itertools
import operator
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from regraft.dsl.syntax import (
    SUBSCRIPT,
    Apply,
    Attr,
    Const,
    Fragment,
    Group,
    Item,
    Node,
    Operand,
    Ref,
    RuleSyntax,
    Slice,
    Transformation,
    Var,
    Wildcard,
)
from regraft.matching.pattern import alternatives, variables
from regraft.ops import rms_norm
from regraft.ops.enlarged_parts import EnlargedPart
from regraft.verification.child.random_states import reseed

OPERATORS: Mapping[str, Callable[..., Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "@": operator.matmul,
    "**": operator.pow,
    "neg": operator.neg,
    "//": operator.floordiv,
    SUBSCRIPT: operator.getitem,
}
NUMBERS = (0.5, 2.0, 3)
BY_NAME: Mapping[str, tuple[Any, ...]] = {
    "dtype": (torch.float32, None),
    "p": (0.0, 0.3),
    "training": (False, True),
    "approximate": ("none", "tanh"),
    "bias": (True, False),
    "eps": (1e-5, 1e-2),
    "condition": ("mask",),
    "kernel_size": (1, 3),
    "stride": (1, 2),
    "padding": (0, 1),
    "dim": (-1, 0, 1),
    "ignore_index": (-100, 1),
    "reduction": ("mean", "sum", "none"),
    "label_smoothing": (0.0, 0.1),
    "weight": (None,),
    "embed_dim": (8,),
    "num_heads": (1, 2),
}
TRIES, WANTED = 3000, 4
DRAWS, SIGMAS = 300, 8.0
# about the place of a match, not about values; `OwnNorm` is an RMSNorm
STRUCTURAL = frozenset(
    {
        "used_once",
        "called_once",
        "distinct",
        "feeds",
        "attends",
        "rms_norm",
        "comparable_widths",
        "vocabulary",
        "many_classes",
        "different_dimensions",
        "pairwise",
        "expanded_pairwise",
        "loop_step",
        "basic_index",
        "carried",
        "first_only",
        "joins_enlarged",
        "part_of",
        "reduces_tensor",
        "patches_of",
        "matrix",
        "sums_columns",
        "scattered_ones",
        "encoded_ones",
        "attended_heads",
        "returned_for",
    }
)
TOLERANCES = {torch.bfloat16: (2e-2, 2e-2), torch.float16: (3e-3, 3e-3)}
DTYPES = (torch.float32, torch.bfloat16)
# arguments that do not fit together
REFUSALS = (
    RuntimeError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
)


class OwnNorm(nn.Module):
    """An RMSNorm of an own class, for rules that apply to layers of any class."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return rms_norm(x, weight=self.weight.to(x.dtype), eps=1e-5)


Drawn = Mapping[str, Callable[[tuple[int, ...]], Any]]
Statistic = Callable[[torch.Tensor], torch.Tensor]


class SpecificationError(Exception):
    """The sides of a rule disagree, or it could not be run."""


@dataclass(frozen=True)
class Case:
    """One way to run an alternative of a rule: the present nodes, values of variables, layers.

    constants  variables without gradients
    """

    nodes: tuple[Node, ...]
    values: Mapping[str, Any]
    layers: Mapping[str, nn.Module]
    constants: frozenset[str] = frozenset()


def _evaluate_group(group: Group, env: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the values of a group's elements, without the indices `_` of a subscript, which
    rewritten code applies to the kernel's result: `:` before the first other index, `...` after
    it."""
    items = list(group.items)
    start = next((i for i, item in enumerate(items) if not isinstance(item, Wildcard)), 0)
    values = [evaluate(item, env) for item in items[start:] if not isinstance(item, Wildcard)]
    further = (...,) if start + len(values) < len(items) else ()
    return (*(slice(None),) * start, *values, *further)


def evaluate(operand: Any, env: Mapping[str, Any]) -> Any:
    """Return the value of an operand of the notation."""
    if isinstance(operand, Var):
        return env[operand.name]
    if isinstance(operand, Const):
        return operand.value
    if isinstance(operand, Ref):
        return resolve(operand.path)
    if isinstance(operand, Attr):
        return getattr(evaluate(operand.base, env), operand.name)
    if isinstance(operand, Group):
        return _evaluate_group(operand, env)
    if isinstance(operand, Item):
        return evaluate(operand.base, env)[evaluate(operand.index, env)]
    if isinstance(operand, Slice):
        return slice(
            *(
                None if bound_of_slice is None else evaluate(bound_of_slice, env)
                for bound_of_slice in (operand.start, operand.stop)
            )
        )
    if isinstance(operand, Apply):
        called = (
            OPERATORS[operand.callee]
            if isinstance(operand.callee, str)
            else evaluate(operand.callee, env)
        )
        keywords = {
            name: evaluate(value, env) for name, value in operand.keywords if bound(value, env)
        }
        return called(*(evaluate(argument, env) for argument in operand.args), **keywords)
    raise SpecificationError(f"{operand!r} has no value")


def bound(operand: Operand, env: Mapping[str, Any]) -> bool:
    """Return whether an argument has a value: those of absent optional nodes have none."""
    return all(name in env for name in variables(operand))


@functools.cache
def resolve(path: str) -> Any:
    """Return an object of PyTorch, Regraft or Python by its qualified name."""
    if hasattr(builtins, path):
        return getattr(builtins, path)
    parts = path.split(".")
    for count in range(len(parts) - 1, 0, -1):  # an op is called as its module is
        try:
            value: Any = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for part in parts[count:]:
            value = getattr(value, part)
        return value
    raise SpecificationError(f"{path} cannot be imported")


def run_source(case: Case, values: Mapping[str, Any], outputs: tuple[str, ...]) -> tuple[Any, ...]:
    """Return the outputs of the nodes of the source for the values."""
    env = {**values, **case.layers}
    for node in case.nodes:
        env[output_of(node)] = evaluate(node.apply, env)
    return tuple(first_tensor(env[name]) for name in outputs)


def output_of(node: Node) -> str:
    """Return the name of the only output of a node."""
    (output,) = node.outputs
    return name_of(output)


def name_of(operand: Operand) -> str:
    """Return the name of an operand that is a variable."""
    assert isinstance(operand, Var)
    return operand.name


def nodes_of(fragment: Fragment) -> tuple[Node, ...]:
    """Return the nodes of a fragment without wildcards."""
    nodes = tuple(node for node in fragment if isinstance(node, Node))
    assert len(nodes) == len(fragment)
    return nodes


def run_target(
    target: tuple[Node, ...], case: Case, values: Mapping[str, Any], several: bool
) -> tuple[Any, ...]:
    """Return the outputs of the target's last node for the values."""
    env = {**values, **case.layers}
    for node in target[:-1]:
        env[output_of(node)] = evaluate(node.apply, env)
    result = evaluate(target[-1].apply, env)
    if isinstance(result, EnlargedPart):  # what another op takes
        result = result.tensor()
    return tuple(result) if several else (first_tensor(result),)


def first_tensor(result: Any) -> Any:
    """Return the first element of a tuple, the only one that `first_only` lets a function use."""
    return result[0] if isinstance(result, tuple) else result


def selections(nodes: tuple[Node, ...]) -> Iterator[tuple[Node, ...]]:
    """Yield the source with all, none, each or all but one of its optional nodes.

    Where one is missing its operand stands for its output.
    """
    skipped = tuple(number for number, node in enumerate(nodes) if node.skip)
    optional = [number for number, node in enumerate(nodes) if node.optional]
    alone = [tuple(number for number in optional if number != excepted) for excepted in optional]
    for missing in dict.fromkeys(
        [(), tuple(optional), *((number,) for number in optional), *alone]
    ):
        renamed: dict[str, Operand] = {}
        remaining = []
        output_names: set[str] = set()
        for number, node in enumerate(nodes):
            apply = substitute(node.apply, renamed)
            if number in (*missing, *skipped):
                renamed[output_of(node)] = through(apply, output_names)
            else:
                remaining.append(Node(apply, node.outputs))
            output_names.add(output_of(node))
        yield tuple(remaining)


def through(apply: Apply, output_names: set[str]) -> Operand:
    """Return the first operand of a node that is the output of another node."""
    operands = (*apply.args, *(value for _, value in apply.keywords))
    if isinstance(apply.callee, Attr):
        operands = (apply.callee.base, *operands)
    return next(
        value for value in operands if isinstance(value, Var) and value.name in output_names
    )


def substitute(operand: Any, names: Mapping[str, Operand]) -> Any:
    """Return the operand with variables replaced by operands."""
    return with_leaves(
        operand, lambda leaf: names.get(leaf.name, leaf) if isinstance(leaf, Var) else leaf
    )


def with_leaves(operand: Any, change: Callable[[Any], Any]) -> Any:
    """Return the operand with its variables, names and constants changed."""
    if isinstance(operand, Attr):
        return Attr(with_leaves(operand.base, change), operand.name)
    if isinstance(operand, Item):
        return Item(with_leaves(operand.base, change), operand.index)
    if isinstance(operand, Apply):
        callee = (
            operand.callee
            if isinstance(operand.callee, str)
            else with_leaves(operand.callee, change)
        )
        keywords = tuple((name, with_leaves(value, change)) for name, value in operand.keywords)
        return Apply(
            callee, tuple(with_leaves(argument, change) for argument in operand.args), keywords
        )
    return change(operand)


def layers_of(nodes: tuple[Node, ...]) -> set[str]:
    """Return the variables that the nodes call."""
    callees = [apply.callee for node in nodes for apply in applies(node.apply)]
    return {callee.name for callee in callees if isinstance(callee, Var)}


class Chooser:
    """A generator of values for the variables of one alternative, until the source accepts them."""

    def __init__(self, rule: RuleSyntax, forward: Transformation, seed: int, drawn: Drawn) -> None:
        self.rule, self.forward, self.drawn = rule, forward, drawn
        self.random = random.Random(seed)
        self.sizes = (0, 0)
        self.shapes: tuple[tuple[int, ...], ...] = ()
        unknown = (
            {predicate.name for predicate in rule.where}
            - STRUCTURAL
            - {"scalar", "present", "tensor", "stored"}
        )
        if unknown:
            raise SpecificationError(f"no values are known that meet {', '.join(sorted(unknown))}")
        self.numbers = {
            name
            for predicate in rule.where
            if predicate.name == "scalar"
            for arg in predicate.args
            for name in variables(arg)
        }
        self.true = {
            name
            for predicate in rule.where
            if predicate.name == "present"
            for arg in predicate.args
            for name in variables(arg)
        }
        self.vectors = {
            name
            for predicate in rule.where
            if predicate.name == "stored"
            for arg in predicate.args
            for name in variables(arg)
        }

    def draw_sizes(self) -> None:
        """Choose the sizes that the tensors and layers of one case share: lengths, widths and their
        shapes."""
        length, second_length = self.random.sample((3, 4, 5), 2)
        width, wide = self.random.sample((4, 6, 7), 2)
        self.sizes = (width, wide)
        self.shapes = (
            (2, 3, length, width),
            (2, 3, second_length, width),
            (2, 3, second_length, wide),
            (2, 1, 1, second_length),
            (1, 1, length, second_length),
            (2, length, width),
            (3, width),
            (2, width, length),
            (2, width, length, 4),
            (2, width, 3, length, 4),
        )

    def case(self, nodes: tuple[Node, ...]) -> Case:
        self.draw_sizes()
        called = layers_of(nodes)
        layers = {
            output_of(node): self.layer(node)
            for transformation in self.rule.init
            for node in nodes_of(transformation.source)
            if output_of(node) in called
        }
        output_names = {output_of(node) for node in nodes}
        free = [
            name
            for node in nodes
            for name in variables(node.apply)
            if name not in output_names and name not in layers
        ]
        values = {name: self.value(name, nodes) for name in dict.fromkeys(free)}
        constants = frozenset(
            name
            for name in values
            if name in self.drawn and not getattr(values[name], "requires_grad", True)
        )
        return Case(nodes, values, layers, constants)

    def layer(self, node: Node) -> nn.Module:
        """A layer with what the rule's text fixes of it; the rest is drawn by the parameters'
        names."""
        apply = (
            self.random.choice((node.apply, *node.alternatives))
            if node.alternatives
            else node.apply
        )
        named = evaluate(apply.callee, {})
        constructor = OwnNorm if named is nn.Module else named
        parameters = parameters_of(constructor)
        operands = {
            **dict(zip([parameter.name for parameter in parameters], apply.args, strict=False))
        }
        operands.update(apply.keywords)
        values = {}
        for parameter in parameters:
            operand = operands.get(parameter.name)
            if isinstance(operand, Var) and operand.name in self.true:
                values[parameter.name] = True
            elif operand is not None and not isinstance(operand, Var):
                values[parameter.name] = evaluate(operand, {})
            elif (
                operand is not None
                or parameter.default is parameter.empty
                or parameter.name in ("stride", "padding")
            ):
                values[parameter.name] = self.random.choice(
                    BY_NAME.get(
                        parameter.name,
                        self.sizes
                        if parameter.default is parameter.empty
                        else (parameter.default,),
                    )
                )
        reseed(self.random.randrange(1 << 30))
        layer: nn.Module = constructor(**values)
        for name, tensor in itertools.chain(layer.named_parameters(), layer.named_buffers()):
            if tensor.is_floating_point():  # not the zeros and ones that layers start with
                tensor.data = (
                    torch.rand_like(tensor) + 0.5 if "var" in name else torch.randn_like(tensor)
                )
        return layer

    def value(self, name: str, nodes: tuple[Node, ...]) -> Any:
        if name in self.drawn:
            return self.drawn[name](self.shapes[0])
        if name in self.numbers:
            return self.random.choice((1e-5, 0.1))
        parameter = self.parameter(name, nodes)
        if parameter in BY_NAME:
            chosen = self.random.choice(BY_NAME[parameter])
            return self.tensor(torch.bool) if chosen == "mask" else chosen
        if self.number_like(name):
            return self.random.choice(NUMBERS)
        return torch.randn(self.sizes[0]) if name in self.vectors else self.tensor(torch.float32)

    def tensor(self, dtype: torch.dtype) -> torch.Tensor:
        shape = self.random.choice(self.shapes)
        return torch.rand(shape) < 0.7 if dtype == torch.bool else torch.randn(shape)

    def parameter(self, name: str, nodes: tuple[Node, ...]) -> str:
        """The name of a parameter that the source gives the variable to."""
        for node in nodes:
            for apply in applies(node.apply):
                for key, operand in apply.keywords:
                    if operand == Var(name):
                        return key
                if (
                    isinstance(apply.callee, Ref)
                    and apply.callee.path == "torch.where"
                    and apply.args[0] == Var(name)
                ):
                    return "condition"
                if (
                    isinstance(apply.callee, Attr)
                    and apply.callee.name == "to"
                    and apply.args == (Var(name),)
                ):
                    return "dtype"
        return ""

    def number_like(self, name: str) -> bool:
        """Return whether the kernel takes the variable as a number, by its annotation."""
        apply = nodes_of(self.forward.target)[0].apply
        try:
            annotations = {
                parameter.name: str(parameter.annotation)
                for parameter in parameters_of(evaluate(apply.callee, {}))
            }
        except (ValueError, KeyError):
            return False
        operands = {**dict(zip(annotations, apply.args, strict=False)), **dict(apply.keywords)}
        return any(
            operand == Var(name) and "float" in annotations.get(key, "")
            for key, operand in operands.items()
        )


@functools.cache
def parameters_of(function: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    """Return the parameters of a function or class in order."""
    return tuple(inspect.signature(function).parameters.values())


def applies(operand: Any) -> Iterator[Apply]:
    """Yield the computations in an operand, outer ones first."""
    if isinstance(operand, Apply):
        yield operand
        for part in (operand.callee, *operand.args, *(part for _, part in operand.keywords)):
            yield from applies(part)
    elif isinstance(operand, Attr | Item):
        yield from applies(operand.base)


def check_rule(
    rule: RuleSyntax,
    seed: int = 0,
    dtypes: tuple[torch.dtype, ...] = DTYPES,
    drawn: Drawn | None = None,
) -> int:
    """Run every alternative with every choice of optional nodes; return the number of cases, at
    least one each.

    `drawn` makes the values of variables, by their names, for the shape that a case's first tensor
    may have; what needs no gradient is a constant.

    Nothing stands where a node may be passed over (`skip`): what may is the business of a test of
    the kernel.
    """
    count = 0
    for number, forward in enumerate(
        alternative
        for transformation in rule.forward
        for alternative in alternatives(transformation)
    ):
        source, target = nodes_of(forward.source), nodes_of(forward.target)
        outputs = tuple(map(name_of, target[-1].outputs)) or (output_of(source[-1]),)
        accepted_cases: list[Case] = []
        for nodes in selections(source):
            cases = list(
                accepted(Chooser(rule, forward, seed, drawn or {}), nodes, outputs, accepted_cases)
            )
            accepted_cases = accepted_cases or cases
            if not cases:
                raise SpecificationError(
                    f"alternative {number + 1}: nothing was found that the source accepts"
                )
            for case in cases:
                compare(rule, target, case, outputs, dtypes)
            compare_chance(rule, target, cases[0], outputs)
            count += len(cases)
    return count


def accepted(
    chooser: Chooser, nodes: tuple[Node, ...], outputs: tuple[str, ...], accepted_cases: list[Case]
) -> Iterator[Case]:
    """Yield cases with different shapes that the source accepts; values of accepted cases with more
    nodes are tried first."""
    keys = set()
    names = {name for node in nodes for name in variables(node.apply)}
    for number in range(TRIES):
        try:
            case = chooser.case(nodes)
            if number < len(accepted_cases):
                values = {n: v for n, v in accepted_cases[number].values.items() if n in names}
                layers = {
                    n: v for n, v in accepted_cases[number].layers.items() if n in layers_of(nodes)
                }
                case = Case(nodes, values, layers, case.constants)
            results = run_source(case, case.values, outputs)
        except REFUSALS:
            continue
        key = tuple(
            str(getattr(value, "shape", value))
            for value in (*case.values.values(), *case.layers.values(), *results)
        )
        if key not in keys and all(isinstance(result, torch.Tensor) for result in results):
            keys.add(key)
            yield case
        if len(keys) >= WANTED:
            return


def compare(
    rule: RuleSyntax,
    target: tuple[Node, ...],
    case: Case,
    outputs: tuple[str, ...],
    dtypes: tuple[torch.dtype, ...],
) -> None:
    """Compare both sides in training and evaluation, in each number format, forward and
    backward."""
    for dtype, training in itertools.product(dtypes, (False, True)):
        rates = {layer: layer.p for layer in case.layers.values() if isinstance(layer, nn.Dropout)}
        for layer in case.layers.values():
            layer.to(dtype).train(training)
        for layer in rates:
            layer.p = 0.0 if training else 0.3
        results = []
        state = {
            n: {k: v.clone() for k, v in layer.state_dict().items()}
            for n, layer in case.layers.items()
        }
        for run in (
            lambda g: run_source(case, g, outputs),
            lambda g: run_target(target, case, g, len(outputs) > 1),
        ):
            for name, layer in case.layers.items():
                layer.load_state_dict(state[name])
            results.append(forward_backward(run, case, dtype))
        before, after = results
        if before is not None:
            exact = exact_result(case, state, outputs, dtype) if dtype != torch.float32 else None
            describe = f"{rule.name}: {dtype}, training={training}, " + ", ".join(
                f"${name}={tuple(v.shape) if isinstance(v, torch.Tensor) else v}"
                for name, v in case.values.items()
            )
            agree(rule, before, after, exact, describe)


def compare_chance(
    rule: RuleSyntax, target: tuple[Node, ...], case: Case, outputs: tuple[str, ...]
) -> None:
    """Assert that with dropout in training every value has one mean and spread on both sides."""
    drops = [layer for layer in case.layers.values() if isinstance(layer, nn.Dropout)]
    if not drops and "p" not in case.values:
        return
    for layer in drops:
        layer.p = 0.5
    for layer in case.layers.values():
        layer.float().train()
    values = {**case.values, **({"p": 0.5, "training": True} if "p" in case.values else {})}
    reseed(0)
    with torch.no_grad():
        ours = torch.stack([run_source(case, values, outputs)[0] for _ in range(DRAWS)]).double()
        theirs = torch.stack(
            [run_target(target, case, values, len(outputs) > 1)[0] for _ in range(DRAWS)]
        ).double()
    statistics: tuple[tuple[str, Statistic], ...] = (
        ("mean", lambda x: x),
        ("spread", lambda x: (x - x.mean(0)) ** 2),
    )
    for name, statistic in statistics:
        left, right = statistic(ours), statistic(theirs)
        error = ((left.var(0) + right.var(0)) / DRAWS).sqrt() + 1e-5 * left.abs().max()
        score = float(((left.mean(0) - right.mean(0)).abs() / error).max())
        if score > SIGMAS:
            raise SpecificationError(
                f"{rule.name}: with dropout the {name} differs by {score:.1f} standard errors"
            )


def exact_result(
    case: Case, state: Mapping[str, Mapping[str, Any]], outputs: tuple[str, ...], dtype: torch.dtype
) -> dict[str, torch.Tensor] | None:
    """Return the source's results on the rounded values in float64; None if it does not run in
    that."""
    for name, layer in case.layers.items():
        layer.double().load_state_dict(state[name])
    return forward_backward(lambda g: run_source(case, g, outputs), case, dtype, torch.float64)


def forward_backward(
    run: Callable[[Mapping[str, Any]], tuple[Any, ...]],
    case: Case,
    dtype: torch.dtype,
    computed: torch.dtype | None = None,
) -> dict[str, torch.Tensor] | None:
    """Return results, gradients and buffers by name; None if this number format does not run.

    Inputs are rounded to `dtype`, and then computed with in `computed` where that is another one.
    """
    values = {
        name: leaf(value, dtype, computed or dtype, name not in case.constants)
        for name, value in case.values.items()
    }
    if "training" in str(case.nodes) and values.get("training") and "p" in values:
        values["p"] = 0.0
    reseed(0)
    try:
        results = run(values)
        loss = sum(
            (result * torch.linspace(-1, 1, result.numel()).reshape(result.shape)).sum()
            for result in results
        )
        parameters = {
            f"{n}.{k}": p for n, layer in case.layers.items() for k, p in layer.named_parameters()
        }
        leaves = {
            n: v for n, v in values.items() if isinstance(v, torch.Tensor) and v.requires_grad
        }
        wanted = {**leaves, **parameters}
        slopes: Sequence[torch.Tensor | None] = [None] * len(wanted)
        if any(result.is_floating_point() or result.is_complex() for result in results):
            slopes = torch.autograd.grad(loss, list(wanted.values()), allow_unused=True)
    except REFUSALS as error:
        if dtype == torch.float32 and computed is None:
            raise SpecificationError(f"it raises {type(error).__name__}: {error}") from error
        return None
    buffers = {
        f"buffer {n}.{k}": b.clone()
        for n, layer in case.layers.items()
        for k, b in layer.named_buffers()
    }
    tensors = {f"output {number}": result.detach() for number, result in enumerate(results)}
    tensors.update(
        {f"gradient of {n}": s for n, s in zip(wanted, slopes, strict=True) if s is not None}
    )
    return {**tensors, **buffers}


def leaf(value: Any, dtype: torch.dtype, computed: torch.dtype, learned: bool) -> Any:
    """Return a tensor as a leaf of a graph, rounded to a number format; other values as they
    are."""
    if isinstance(value, torch.Tensor):
        return (
            value.to(dtype).to(computed).requires_grad_(learned)
            if value.is_floating_point()
            else value
        )
    return value


def agree(
    rule: RuleSyntax,
    before: dict[str, Any],
    after: dict[str, Any] | None,
    exact: dict[str, Any] | None,
    what: str,
) -> None:
    """Assert equal results; with `exact` ones also accept results no further from these than the
    source's, and gradients of biases in half precision that are off by the roundings of partial
    sums."""
    if after is None or list(before) != list(after):
        raise SpecificationError(
            f"{what}: the target gives {list(after or ())}, the source {list(before)}"
        )
    for name, ours in before.items():
        theirs = after[name]
        agrees = (
            torch.equal(ours, theirs)
            if rule.safety == "exact" and name.startswith("output")
            else close(ours, theirs)
        )
        if (
            not agrees
            and exact is not None
            and ours.shape == theirs.shape
            and ours.dtype == theirs.dtype
        ):
            error_of_ours, error_of_theirs = (
                (result.double() - exact[name].double()).abs().max() for result in (ours, theirs)
            )
            # kernels of some processors round every partial sum of a bias's gradient
            is_half = ours.dtype in (torch.bfloat16, torch.float16)
            size = max(1.0, float(exact[name].double().abs().max()))
            rounding = 32 * torch.finfo(ours.dtype).eps * size if is_half else 0.0
            is_of_bias = name.startswith("gradient") and name.endswith("bias")
            limit = max(float(error_of_ours), rounding * is_of_bias)
            agrees = bool(error_of_theirs <= limit)
        if not agrees:
            gap = (
                (ours.double() - theirs.double()).abs().max()
                if ours.shape == theirs.shape
                else "shape"
            )
            raise SpecificationError(f"{what}: {name} differs ({gap})")


def close(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Return whether two tensors agree within the number format's tolerance of the largest
    value."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    size = float(ours.abs().max()) if ours.numel() else 0.0
    rtol, atol = TOLERANCES.get(ours.dtype, (1e-4, 1e-5))
    return torch.allclose(theirs, ours, rtol=rtol, atol=atol * max(1.0, size), equal_nan=True)
