"""Queries on the syntax trees of classes and functions: the methods that two versions differ in,
and the names that a definition reads, binds and can be reached by."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from regraft.verification.bound_and_read_names import mentioned_names

Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

# Functions and attributes that give the annotations of other code.
_READERS_OF_ANNOTATIONS = frozenset(
    {
        "__annotations__",
        "__annotate__",
        "annotation",
        "annotations",
        "return_annotation",
        "get_annotations",
        "get_type_hints",
    }
)

# Private methods that `nn.Module` itself calls.
_CALLED_BY_MODULE = frozenset(
    {
        "_apply",
        "_call_impl",
        "_wrapped_call_impl",
        "_slow_forward",
        "_get_name",
        "_named_members",
        "_infer_parameters",
        "_load_from_state_dict",
        "_save_to_state_dict",
        "_get_backward_hooks",
        "_get_backward_pre_hooks",
        "_maybe_warn_non_full_backward_hook",
        "_replicate_for_data_parallel",
    }
)


def edited_methods(old_class: Definition | None, new_class: Definition) -> frozenset[str] | None:
    """Return the names of the methods in which two versions of a class differ; None if they also
    differ elsewhere, are no classes (the old one may be None) or define a method twice."""
    if not isinstance(old_class, ast.ClassDef) or not isinstance(new_class, ast.ClassDef):
        return None
    versions = []
    for node in (old_class, new_class):
        methods = [part for part in node.body if method_name(part)]
        dump_by_method = {method_name(part): ast.dump(part) for part in methods}
        if len(dump_by_method) != len(methods):
            return None
        other_parts = [part for part in node.body if part not in methods]
        shell = (*node.bases, *node.keywords, *node.decorator_list, *other_parts)
        versions.append((list(map(ast.dump, shell)), dump_by_method))
    (old_shell, old_methods), (new_shell, new_methods) = versions
    if old_shell != new_shell:
        return None
    names = {*old_methods, *new_methods}
    return frozenset(name for name in names if old_methods.get(name) != new_methods.get(name))


def method_name(node: ast.AST) -> str:
    """Return the name of a function definition, async or not, "" for any other node."""
    return node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else ""


def attributes_read(node: ast.AST) -> Iterator[str]:
    """Yield the names of the attributes that a node reads, also by `getattr` with a constant name;
    those of `super()`, which no subclass redefines, are left out."""
    for child in ast.walk(node):
        match child:
            case ast.Attribute(value=ast.Call(func=ast.Name("super"))):
                continue
            case ast.Attribute(attr=name, ctx=ast.Load()):
                yield name
            case ast.Call(func=ast.Name("getattr"), args=[_, ast.Constant(str(name)), *_]):
                yield name


def class_body_names(cls: ast.ClassDef) -> set[str]:
    """Return the names that the body of a class binds: methods, nested classes and assigned
    variables, also within `if` and `for`; an annotation without a value binds nothing."""
    definitions = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    methods = {node.name for node in cls.body if isinstance(node, definitions)}
    statements = [
        node
        for node in cls.body
        if not isinstance(node, definitions)
        and not (isinstance(node, ast.AnnAssign) and node.value is None)
    ]
    return methods | {
        name.id
        for statement in statements
        for name in ast.walk(statement)
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)
    }


def is_constant_alone(statement: ast.stmt) -> bool:
    """Return whether a statement consists of a constant alone: a docstring, an ellipsis, or any
    other constant."""
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def inherits_only_from(subclass: Definition, cls: str) -> bool:
    """Return whether a definition is a class whose only base is written `cls`, without keywords."""
    return (
        isinstance(subclass, ast.ClassDef)
        and not subclass.keywords
        and [ast.unparse(base) for base in subclass.bases] == [cls]
    )


def are_called_by_name_only(methods: frozenset[str], cls: ast.ClassDef) -> bool:
    """Return whether no method runs unless code of the file names it: the only base of the class is
    `nn.Module`, and neither it nor Python calls a method of this name by itself."""
    return [ast.unparse(base) for base in cls.bases] == ["nn.Module"] and all(
        map(_is_called_by_name_only, methods)
    )


def _is_called_by_name_only(method: str) -> bool:
    """Return whether a method is private and neither Python nor `nn.Module` calls a method of this
    name."""
    return (
        method.startswith("_") and not method.startswith("__") and method not in _CALLED_BY_MODULE
    )


def named_words(node: ast.AST) -> Iterator[str]:
    """Yield the names of all attributes in a node and the words of its string constants, by both of
    which code can name a method; docstrings are left out."""
    documentation = {
        id(statement.value) for statement in ast.walk(node) if isinstance(statement, ast.Expr)
    }
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute):
            yield child.attr
        elif (
            isinstance(child, ast.Constant)
            and isinstance(child.value, str)
            and id(child) not in documentation
        ):
            yield from re.findall(r"\w+", child.value)


def used_names(node: ast.AST) -> frozenset[str]:
    """Return the variables that a node mentions, except those that occur only as the types of
    `isinstance` and `issubclass`."""
    return mentioned_names(node) - _type_test_names(node)


def names_used_when_run(node: ast.AST) -> frozenset[str]:
    """Return the variables that a node mentions as `used_names` does, except those that occur only
    as annotations of a function, or of a variable in one, that no decorator may read: Python runs
    the function without them."""
    return used_names(node) - _annotation_names(node)


def reads_annotations(tree: ast.AST) -> bool:
    """Return whether code may read annotations: it names a function or an attribute that gives
    them, also in a string."""
    words = {*named_words(tree), *mentioned_names(tree)}
    return not words.isdisjoint(_READERS_OF_ANNOTATIONS)


def _annotation_names(node: ast.AST) -> set[str]:
    """Return the names that occur only in annotations of functions without decorators, and of
    variables in these."""
    annotations = [
        annotation
        for function in _functions_without_decorators(node)
        for annotation in _annotations_of(function)
    ]
    return _names_only_in(annotations, node)


def _functions_without_decorators(
    node: ast.AST,
) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions in a node, at any depth, which no decorator, and no decorator or keyword
    of a class around them, is given."""
    pending = [node]
    while pending:
        child = pending.pop()
        if isinstance(child, ast.ClassDef) and (child.decorator_list or child.keywords):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) and not child.decorator_list:
            yield child
        pending.extend(ast.iter_child_nodes(child))


def _annotations_of(function: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[ast.expr]:
    """Yield the annotations of a function's parameters, result and variables, without those of
    functions and classes in it."""
    if function.returns is not None:
        yield function.returns
    pending: list[ast.AST] = [function.args, *function.body]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            pending.extend(ast.iter_child_nodes(node))


def _type_test_names(node: ast.AST) -> set[str]:
    """Return the names that occur only in the second argument of `isinstance` and `issubclass`: no
    object is built of them."""
    calls = [
        call
        for call in ast.walk(node)
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    ]
    tested_types = [
        call.args[1]
        for call in calls
        if mentioned_names(call.func) & {"isinstance", "issubclass"} and len(call.args) > 1
    ]
    return _names_only_in(tested_types, node)


def _names_only_in(parts: Sequence[ast.AST], node: ast.AST) -> set[str]:
    """Return the variables that some parts of a node mention and the rest of the node does not."""
    part_nodes = {id(n) for part in parts for n in ast.walk(part)}
    elsewhere = {
        n.id for n in ast.walk(node) if isinstance(n, ast.Name) and id(n) not in part_nodes
    }
    return {name for part in parts for name in mentioned_names(part)} - elsewhere


def base_names(node: ast.ClassDef) -> set[str]:
    """Return the variables that the bases and keywords of a class statement mention."""
    return {
        name
        for base in (*node.bases, *(keyword.value for keyword in node.keywords))
        for name in mentioned_names(base)
    }


def target_names(statement: ast.stmt) -> Iterator[str]:
    """Yield the variables that the targets of an assignment mention, `x` for `x.y = ...`; nothing
    for another statement."""
    if isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (name for target in targets for name in mentioned_names(target))
