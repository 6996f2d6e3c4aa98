"""Objects that several paths made, each its own, become one where the paths meet."""

from __future__ import annotations

import ast
import re
from dataclasses import replace

from regraft.splitting.codes import assign
from regraft.splitting.objects import Objects
from regraft.splitting.residual import HostStep, Step, TensorStep, at_the_end, reads
from regraft.splitting.values import Names, Value, literal


def unify(objects: Objects, ends: list[tuple[list[Step], Names]]) -> None:
    """Let all paths call the objects as the first one does that are its own, by the same names.

    An object is a path's own if the other one lacks it. What refers to it there does so afterwards, too: only its
    number differs.
    """
    first = objects.live(ends[0][1])
    for steps, names in ends[1:]:
        kept = objects.live(names)
        if kept.keys() != names.keys():
            names.clear()
            names.update(kept)
        while (key := counterpart(objects, first, names)) is not None:
            renumber(objects, steps, names, names[key].example, first[key].example)


def counterpart(objects: Objects, first: Names, names: Names) -> str | None:
    """A name that holds an object of one class on both paths, each path's own."""
    for key in first.keys() & names.keys():
        one, other = first[key].example, names[key].example
        made = objects.is_made(one) and objects.is_made(other)
        if made and type(one) is type(other) and one is not other:
            own = objects.name_of(one) not in names and objects.name_of(other) not in first
            if own and not within(objects, names, other):
                return key
    return None


def within(objects: Objects, names: Names, stand_in: object) -> bool:
    """Whether something known holds an object, such as a tuple or a bound method."""
    held = [value.example for value in names.values() if value.example is not stand_in]
    return any(objects.holds_made(one) and not objects.is_made(one) for one in held)


def renumber(objects: Objects, steps: list[Step], names: Names, old: object, new: object) -> None:
    number, wanted = objects.name_of(old)[1:], objects.name_of(new)[1:]
    moved = {key: key[0] + wanted + key[1 + len(number) :] for key in names if re.match(rf"[od]{number}(_|$)", key)}
    made: Names = {}
    for key, value in names.items():
        if moved.get(key) in objects.varying and value.kind == "static" and literal(value.example) is not None:
            made[moved[key]] = held_at_the_end(objects, steps, moved[key], replace(value, kind="host"))
        elif value.kind == "static":
            made[moved.get(key, key)] = objects.static(new) if value.example is old else value
        elif key in moved and isinstance(value.code, ast.Name) and value.kind != "lost":
            made[moved[key]] = held_at_the_end(objects, steps, moved[key], value, key in objects.sizes)
            objects.open.setdefault(moved[key], set()).update(objects.open.get(key, ()))
            if key in objects.sizes:
                objects.sizes.add(moved[key])
        else:
            made[moved.get(key, key)] = renamed(value, moved)
    names.clear()
    names.update(made)
    objects.changed |= {key for key in moved.values() if "_" in key}  # not what it has, which has to be the same


def held_at_the_end(objects: Objects, steps: list[Step], key: str, value: Value, size: bool = False) -> Value:
    kind = TensorStep if value.kind == "tensor" or size else HostStep
    at_the_end(steps, kind(assign(key, value.code), objects.place))
    return replace(value.named(key), constant=False)


def renamed(value: Value, moved: dict[str, str]) -> Value:
    if not reads(value.code) & moved.keys():
        return value

    class Renamed(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.Name:
            return ast.copy_location(ast.Name(moved.get(node.id, node.id), node.ctx), node)

    return replace(value, code=Renamed().visit(ast.parse(ast.unparse(value.code), mode="eval").body))
