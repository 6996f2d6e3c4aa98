"""Recipes that are a template of text and a selector of places: what most kinds are made of."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, replace

from mutants.core import Finder, Function, Module, Recipe, Site, Template

SEQUENCES = re.compile(
    r"(Attention\d?|Attn|Mlp|MLP|FeedForward|FFN|SelfOutput|Intermediate|Output|EncoderLayer|DecoderLayer|Layer|Block|GLU)$"
)
_IMAGES = re.compile(
    r"Conv|2d|2D|3D|3d|Patch|Stage|Down|Up|Stem|Pool|Head|Norm|Res|Mobile|Ghost|Bottle|Vae|VAE|Inverted"
)


@dataclass(frozen=True, slots=True)
class Return:
    """A function that ends in `return` of a tensor; `first` is its first argument, a tensor too."""

    function: Function
    statement: ast.Return
    value: ast.expr
    first: str


def returns(module: Module) -> Iterator[Return]:
    """Yield the `forward` methods that return one tensor at their end and nowhere else."""
    for function in module.functions:
        if function.owner is None or function.node.name != "forward" or not function.arguments:
            continue
        last = function.node.body[-1]
        exits = [node for node in ast.walk(function.node) if isinstance(node, ast.Return)]
        if not isinstance(last, ast.Return) or len(exits) != 1 or last.value is None:
            continue
        first = function.arguments[0]
        if is_tensor(function, first, last.value):
            yield Return(function, last, last.value, first.arg)


def is_tensor(function: Function, first: ast.arg, value: ast.expr) -> bool:
    """Whether the returned value is a tensor, as far as annotations and names tell."""
    if not isinstance(value, ast.Name | ast.Call | ast.BinOp) or _is_record(value):
        return False
    said = ast.unparse(function.node.returns) if function.node.returns else ""
    annotated = ast.unparse(first.annotation) if first.annotation else ""
    names_tensor = annotated in ("torch.Tensor", "Tensor", "torch.FloatTensor")
    if said in ("torch.Tensor", "Tensor", "torch.FloatTensor"):
        return names_tensor or first.arg in ("x", "hidden_states", "hidden_state")
    if said:
        return False
    same = isinstance(value, ast.Name) and value.id == first.arg
    return same and (names_tensor or first.arg in ("x", "hidden_states", "hidden_state"))


def _is_record(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and (
        isinstance(value.func, ast.Name) or "processor" in ast.unparse(value.func)
    )


def is_sequence(place: Return) -> bool:
    """Whether the class works on batch, length and width, by its name."""
    owner = place.function.owner
    return (
        owner is not None and bool(SEQUENCES.search(owner.name)) and not _IMAGES.search(owner.name)
    )


def at_return(template: Template, sequence: bool = False) -> Finder:
    """Find returned tensors and replace the `return` by a template.

    The template's text is an expression, or statements that end in `return`. In it `{value}` is the
    returned tensor, `{x}` the first argument, `{cls}` the class and `{module}` the module; `top` is
    inserted above the first definition, `init` at the end of the constructor. With `sequence` only
    classes that work on batch, length and width are changed.
    """

    def find(module: Module) -> Iterator[Site]:
        for place in returns(module):
            owner = place.function.owner
            constructor = _constructor(owner)
            if (
                owner is None
                or (sequence and not is_sequence(place))
                or (template.init and constructor is None)
            ):
                continue
            bound = isinstance(place.value, ast.Name)
            name = module.text(place.value) if bound else "output"
            fields = {
                "value": name,
                "x": place.first,
                "cls": owner.name,
                "module": dotted(module.label),
            }
            body = fill(template.text, **fields)
            body = body if "return" in body else f"return {body}"
            text = body if bound else f"output = {module.text(place.value)}\n{body}"
            edits = [module.replace(place.statement, indented(module, place.statement, text))]
            if template.top:
                edits.append(module.insert_top(fill(template.top, **fields)))
            if template.init and constructor is not None:
                edits.append(
                    module.insert_after(constructor.body[-1], fill(template.init, **fields))
                )
            yield Site(
                place.function.name,
                place.statement.lineno,
                tuple(edits),
                _short(body.replace("\n", "; ")),
            )

    return find


def at_start(template: Template) -> Finder:
    """Find `forward` methods that take and return a tensor and put statements above their first."""

    def find(module: Module) -> Iterator[Site]:
        for place in returns(module):
            owner, first = place.function.owner, place.function.body[0]
            if owner is not None:
                text = fill(template.text, x=place.first, cls=owner.name)
                edits = [module.insert_before(first, text)]
                edits += [module.insert_top(template.top)] if template.top else []
                yield Site(
                    place.function.name,
                    first.lineno,
                    tuple(edits),
                    _short(text.replace("\n", "; ")),
                )

    return find


def indented(module: Module, statement: ast.stmt, text: str) -> str:
    """Indent lines that replace a statement; the first one stands where the statement did."""
    return textwrap.indent(text, module.indent(statement)).lstrip()


def dotted(label: str) -> str:
    return label.removesuffix(".py").replace("/", ".")


def fill(template: str, **fields: str) -> str:
    """Put fields into a template, other braces left alone."""
    text = textwrap.dedent(template).strip("\n")
    for name, value in fields.items():
        text = text.replace("{" + name + "}", value)
    return text


def _constructor(owner: ast.ClassDef | None) -> ast.FunctionDef | None:
    methods = owner.body if owner else ()
    return next(
        (node for node in methods if isinstance(node, ast.FunctionDef) and node.name == "__init__"),
        None,
    )


MIXED = ("transformers", "timm", "transformers", "diffusers")


def wrap(
    name: str,
    kind: str,
    differs: str,
    text: str,
    *,
    witness: str = "",
    count: int = 3,
    sequence: bool = False,
    top: str = "",
    init: str = "",
) -> Recipe:
    """Make a recipe that changes a returned tensor."""
    template = Template(text, top, init)
    find = at_return(template, sequence)
    return Recipe(
        name,
        kind,
        differs,
        find,
        count,
        (b"def forward",),
        MIXED,
        witness=witness,
        template=template,
    )


def expressions(
    module: Module, inside: re.Pattern[str] | None = None
) -> Iterator[tuple[Function, ast.expr]]:
    """Yield every expression of the file's functions, with the function."""
    for function in module.functions:
        if inside is None or inside.search(function.name):
            for statement in function.body:
                yield from (
                    (function, node) for node in ast.walk(statement) if isinstance(node, ast.expr)
                )


def computes(function: Function) -> bool:
    """Whether a function's body names torch."""
    return any(
        isinstance(node, ast.Name) and node.id == "torch"
        for s in function.body
        for node in ast.walk(s)
    )


def exchange(function: Function, module: Module, node: ast.expr, text: str) -> Site:
    """Make a site that replaces an expression."""
    edit = module.replace(node, text)
    return Site(
        function.name, node.lineno, (edit,), f"{_short(module.text(node))} -> {_short(text)}"
    )


def with_top(site: Site, module: Module, template: Template) -> Site:
    """Add what a template needs above the first definition."""
    return (
        replace(site, edits=(*site.edits, module.insert_top(template.top)))
        if template.top
        else site
    )


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else f"{line[:97]}..."
