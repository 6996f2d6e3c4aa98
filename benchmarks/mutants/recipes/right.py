"""Right edits: what people write when they tidy a file up; each should be proved."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Iterator

from mutants.core import RIGHT, Finder, Function, Module, Recipe, Site
from mutants.recipes.templates import MIXED, computes, exchange, expressions, indented, returns


def _forwards(module: Module) -> Iterator[Function]:
    """Yield `forward` methods and module functions that compute with tensors."""
    for function in module.functions:
        if function.node.name == "forward" or (function.owner is None and computes(function)):
            yield function


def _statements(function: Function) -> Iterator[tuple[list[ast.stmt], int]]:
    """Yield every list of statements of a function with every position in it."""
    for node in ast.walk(function.node):
        for name in ("body", "orelse"):
            block = getattr(node, name, None)
            if isinstance(block, list) and block and isinstance(block[0], ast.stmt):
                yield from ((block, position) for position in range(len(block)))


def _rename(module: Module) -> Iterator[Site]:
    """Rename a local variable of a function that holds no other scope and no formatted text."""
    for function in _forwards(module):
        inner = (
            ast.Lambda,
            ast.FunctionDef,
            ast.ClassDef,
            ast.comprehension,
            ast.JoinedStr,
            ast.Global,
            ast.Nonlocal,
        )
        if any(
            isinstance(node, inner) for node in ast.walk(function.node) if node is not function.node
        ):
            continue
        if re.search(r"\b(locals|vars|eval)\(", module.text(function.node)):
            continue
        held = {
            argument.arg for argument in ast.walk(function.node) if isinstance(argument, ast.arg)
        }
        names = [node for node in ast.walk(function.node) if isinstance(node, ast.Name)]
        stored = sorted({node.id for node in names if isinstance(node.ctx, ast.Store)} - held)
        for name in stored:
            uses = [node for node in names if node.id == name]
            if len(uses) >= 3:
                edits = tuple(module.replace(node, f"{name}_local") for node in uses)
                yield Site(function.name, uses[0].lineno, edits, f"{name} -> {name}_local")


def _commute(module: Module) -> Iterator[Site]:
    """Exchange the operands of a sum or a product of two tensors, by their names."""
    tensors = re.compile(
        r"^(x|residual|hidden_states|shortcut|identity|attn_output|.*_states|.*_output|q|k|cos|sin)$"
    )
    for function, node in expressions(module):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Mult):
            left, right = node.left, node.right
            named = all(
                isinstance(side, ast.Name) and tensors.match(side.id) for side in (left, right)
            )
            if named and function.node.name == "forward":
                sign = "+" if isinstance(node.op, ast.Add) else "*"
                yield exchange(
                    function, module, node, f"{module.text(right)} {sign} {module.text(left)}"
                )


def _else_of_return(module: Module) -> Iterator[Site]:
    """Put the last `return` of a function into the `else` of an early one."""
    for function in module.functions:
        body = function.node.body
        if (
            len(body) < 2
            or not isinstance(body[-1], ast.Return)
            or not isinstance(body[-2], ast.If)
        ):
            continue
        early, last = body[-2], body[-1]
        if not early.orelse and isinstance(early.body[-1], ast.Return):
            text = f"else:\n    {_deepen(module.text(last))}"
            edit = module.replace(last, indented(module, last, text))
            yield Site(function.name, last.lineno, (edit,), "last return in an else")


def _return_of_else(module: Module) -> Iterator[Site]:
    """Take the `else` of an early return away."""
    for function in module.functions:
        last = function.node.body[-1]
        if isinstance(last, ast.If) and last.orelse and isinstance(last.body[-1], ast.Return):
            if isinstance(last.orelse[0], ast.If):
                continue
            body = "".join(
                module.source.line(n) + "\n"
                for n in range(last.body[0].lineno, _end(last.body) + 1)
            )
            rest = "".join(
                module.source.line(n) + "\n"
                for n in range(last.orelse[0].lineno, _end(last.orelse) + 1)
            )
            rest = textwrap.indent(textwrap.dedent(rest), module.indent(last))
            text = f"if {module.text(last.test)}:\n{body}{rest}".rstrip("\n")
            yield Site(
                function.name,
                last.lineno,
                (module.replace(last, text),),
                "else after a return taken away",
            )


def _end(block: list[ast.stmt]) -> int:
    return block[-1].end_lineno or block[-1].lineno


def _deepen(text: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(f"    {line}" if line.strip() else line for line in rest)])


def _moved_out(module: Module) -> Iterator[Site]:
    """Move a returned expression of local names into a function above the class."""
    known = {*dir(builtins), "torch", "nn", "F", "math", "self"}
    for place in returns(module):
        names = {node.id for node in ast.walk(place.value) if isinstance(node, ast.Name)}
        if isinstance(place.value, ast.Name):
            assigned = place.function.node.body[-2] if len(place.function.node.body) > 1 else None
            value = assigned.value if isinstance(assigned, ast.Assign) else None
            names = (
                {node.id for node in ast.walk(value) if isinstance(node, ast.Name)}
                if value
                else set()
            )
        else:
            value = place.value
        local = names - known
        free = [name for name in sorted(local) if not _is_local(place.function, name)]
        owner = place.function.owner
        if (
            value is None
            or owner is None
            or free
            or not local
            or "self" in names
            or isinstance(value, ast.Name)
        ):
            continue
        arguments = ", ".join(sorted(local))
        helper = f"_finish_{owner.name.lower().strip('_')}"
        body = " ".join(line.strip() for line in module.text(value).splitlines())
        edits = (
            module.insert_before(owner, f"def {helper}({arguments}):\n    return {body}\n\n\n"),
            module.replace(value, f"{helper}({arguments})"),
        )
        yield Site(
            place.function.name,
            value.lineno,
            edits,
            f"{' '.join(body.split())} moved into {helper}",
        )


def _is_local(function: Function, name: str) -> bool:
    arguments = {node.arg for node in ast.walk(function.node.args) if isinstance(node, ast.arg)}
    stored = {
        n.id
        for n in ast.walk(function.node)
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    return name in arguments | stored


def _docstring(module: Module) -> Iterator[Site]:
    """Change a docstring of a `forward` method, or give it one."""
    for function in module.functions:
        first = function.node.body[0]
        if function.node.name != "forward" or function.owner is None:
            continue
        if ast.get_docstring(function.node) is None and first.lineno > function.node.lineno:
            edit = module.insert_before(first, '"""Compute the layer\'s result."""')
            yield Site(function.name, first.lineno, (edit,), "docstring added")


def _comment(module: Module) -> Iterator[Site]:
    for function in _forwards(module):
        last = function.node.body[-1]
        if last.lineno > function.node.lineno:
            edit = module.insert_before(last, "# the result, as the caller expects it")
            yield Site(function.name, last.lineno, (edit,), "comment added")


def _message(module: Module) -> Iterator[Site]:
    """Change the text of an error's message."""
    for function in module.functions:
        for node in ast.walk(function.node):
            if (
                isinstance(node, ast.Raise)
                and isinstance(node.exc, ast.Call)
                and len(node.exc.args) == 1
            ):
                text = module.text(node.exc.args[0])
                if text.startswith(('f"', '"')) and "\n" not in text and '"""' not in text:
                    edit = module.replace(node.exc.args[0], f'{text[:-1]} (see the documentation)"')
                    yield Site(function.name, node.lineno, (edit,), "message of an error changed")


def _method(before: str, after: str) -> Finder:
    """Call a method of a tensor by another name."""

    def find(module: Module) -> Iterator[Site]:
        for function, node in expressions(module):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == before
                and function.node.name == "forward"
                and ast.unparse(node.func.value) not in ("torch", "F", "np")
            ):
                holder = module.text(node.func.value)
                yield exchange(function, module, node.func, f"{holder}.{after}")

    return find


def _square(module: Module) -> Iterator[Site]:
    """Write a square as a product."""
    for function, node in expressions(module):
        if (
            isinstance(node, ast.BinOp)
            and isinstance(node.op, ast.Pow)
            and isinstance(node.left, ast.Name)
        ):
            if isinstance(node.right, ast.Constant) and node.right.value == 2:
                yield exchange(function, module, node, f"({node.left.id} * {node.left.id})")
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "pow"
        ):
            name = module.text(node.func.value)
            if _is_two(node) and name.isidentifier() and name != "torch":
                yield exchange(function, module, node, f"({name} * {name})")


def _is_two(node: ast.Call) -> bool:
    return (
        len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and node.args[0].value == 2
    )


def _if_statement(module: Module) -> Iterator[Site]:
    """Write `x = a if c else b` as a statement."""
    for function in _forwards(module):
        for block, position in _statements(function):
            node = block[position]
            if (
                isinstance(node, ast.Assign)
                and isinstance(node.value, ast.IfExp)
                and len(node.targets) == 1
            ):
                target, value = module.text(node.targets[0]), node.value
                yes, no = module.text(value.body), module.text(value.orelse)
                text = (
                    f"if {module.text(value.test)}:\n    {target} = {yes}\nelse:\n    {target} ="
                    f" {no}"
                )
                if "\n" not in yes + no + module.text(value.test):
                    edit = module.replace(node, indented(module, node, text))
                    yield Site(
                        function.name, node.lineno, (edit,), "conditional expression as a statement"
                    )


def _if_expression(module: Module) -> Iterator[Site]:
    """Write an `if` whose branches assign the same name as an expression."""
    for function in _forwards(module):
        for block, position in _statements(function):
            node = block[position]
            if not (isinstance(node, ast.If) and len(node.body) == len(node.orelse) == 1):
                continue
            yes, no = node.body[0], node.orelse[0]
            if not (isinstance(yes, ast.Assign) and isinstance(no, ast.Assign)):
                continue
            target = module.text(yes.targets[0])
            texts = [module.text(part) for part in (yes.value, node.test, no.value)]
            plain = isinstance(yes.targets[0], ast.Name) and not any("\n" in text for text in texts)
            if (
                target == module.text(no.targets[0])
                and plain
                and module.source.line(node.lineno).lstrip()[:2] == "if"
            ):
                edit = module.replace(
                    node, f"{target} = ({texts[0]}) if ({texts[1]}) else ({texts[2]})"
                )
                yield Site(
                    function.name, node.lineno, (edit,), "if statement as a conditional expression"
                )


def _exchanged_branches(module: Module) -> Iterator[Site]:
    """Write `if x is None: A else: B` the other way round."""
    for function in _forwards(module):
        for block, position in _statements(function):
            node = block[position]
            if not (
                isinstance(node, ast.If) and node.orelse and isinstance(node.test, ast.Compare)
            ):
                continue
            test = module.text(node.test)
            lines = module.source
            tidy = lines.line(node.lineno).lstrip().startswith("if ") and not isinstance(
                node.orelse[0], ast.If
            )
            if not (tidy and (" is None" in test or " is not None" in test)):
                continue
            other = (
                test.replace(" is not None", " is  None")
                .replace(" is None", " is not None")
                .replace("  ", " ")
            )
            body, rest = (
                "\n".join(lines.line(n) for n in range(block[0].lineno, _end(block) + 1))
                for block in (node.body, node.orelse)
            )
            text = f"if {other}:\n{rest}\n{module.indent(node)}else:\n{body}"
            yield Site(
                function.name, node.lineno, (module.replace(node, text),), "branches exchanged"
            )


def _loop(module: Module) -> Iterator[Site]:
    """Write a list comprehension as a loop."""
    for function in module.functions:
        for block, position in _statements(function):
            node = block[position]
            value = node.value if isinstance(node, ast.Assign) else None
            if not (
                isinstance(node, ast.Assign)
                and isinstance(value, ast.ListComp)
                and len(value.generators) == 1
            ):
                continue
            generator = value.generators[0]
            parts = [module.text(part) for part in (value.elt, generator.target, generator.iter)]
            if (
                generator.ifs
                or not isinstance(node.targets[0], ast.Name)
                or any("\n" in part for part in parts)
            ):
                continue
            if re.search(rf"\b{node.targets[0].id}\b", module.text(value)):
                continue
            name = node.targets[0].id
            text = f"{name} = []\nfor {parts[1]} in {parts[2]}:\n    {name}.append({parts[0]})"
            edit = module.replace(node, indented(module, node, text))
            yield Site(function.name, node.lineno, (edit,), "list comprehension as a loop")


def _super(module: Module) -> Iterator[Site]:
    """Name class and object in `super()`."""
    for function, node in expressions(module):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node) == "super()"
            and function.owner is not None
            and function.node.name == "__init__"
        ):
            yield exchange(function, module, node, f"super({function.owner.name}, self)")


def _annotation(module: Module) -> Iterator[Site]:
    """Annotate the first argument of a `forward` method."""
    for function in module.functions:
        if (
            function.node.name == "forward"
            and function.arguments
            and function.arguments[0].annotation is None
        ):
            first = function.arguments[0]
            plain = not function.node.args.defaults or len(function.arguments) > len(
                function.node.args.defaults
            )
            if plain:
                edit = module.replace(first, f"{first.arg}: torch.Tensor")
                yield Site(function.name, first.lineno, (edit,), f"{first.arg} annotated")


def _matmul(module: Module) -> Iterator[Site]:
    """Write `torch.matmul(a, b.transpose(..))` as an einsum."""
    for function, node in expressions(module):
        if not (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "torch.matmul"
            and len(node.args) == 2
        ):
            continue
        left, right = node.args
        if (
            isinstance(right, ast.Call)
            and isinstance(right.func, ast.Attribute)
            and right.func.attr == "transpose"
        ):
            axes = {ast.unparse(argument) for argument in right.args}
            if axes in ({"2", "3"}, {"-1", "-2"}):
                holder = module.text(right.func.value)
                text = f'torch.einsum("...qd,...kd->...qk", {module.text(left)}, {holder})'
                yield exchange(function, module, node, text)


def _einsum(module: Module) -> Iterator[Site]:
    """Write an einsum that is a product of matrices as one."""
    for function, node in expressions(module):
        if not (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "torch.einsum"
            and len(node.args) == 3
        ):
            continue
        if not isinstance(node.args[0], ast.Constant) or not isinstance(node.args[0].value, str):
            continue
        formula = node.args[0].value.replace(" ", "")
        match = re.fullmatch(r"(\w+)(\w)(\w),\1(\w)(\w)->\1(\w)(\w)", formula)
        left, right = (f"({module.text(argument)})" for argument in node.args[1:])
        if match:
            _, i, d, j, e, p, q = match.groups()
            if d == e and (p, q) == (i, j):
                yield exchange(
                    function, module, node, f"torch.matmul({left}, {right}.transpose(-1, -2))"
                )
            elif d == j and (p, q) == (i, e):
                yield exchange(function, module, node, f"torch.matmul({left}, {right})")


def _operator(module: Module) -> Iterator[Site]:
    """Write `torch.matmul(a, b)` as `a @ b`."""
    for function, node in expressions(module):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "torch.matmul"
            and len(node.args) == 2
        ):
            left, right = map(module.text, node.args)
            yield exchange(function, module, node, f"(({left}) @ ({right}))")


def _concatenate(module: Module) -> Iterator[Site]:
    """Write the concatenation of two halves with the function's other name."""
    for function, node in expressions(module):
        if (
            isinstance(node, ast.Call)
            and function.node.name.startswith("rotate_half")
            and len(node.args) == 1
            and ast.unparse(node.func) == "torch.cat"
            and "dim=-1" in module.text(node)
        ):
            parts = module.text(node.args[0])
            yield exchange(function, module, node, f"torch.concatenate({parts}, axis=-1)")


def _concatenation(module: Module) -> Iterator[Site]:
    """Write a stack of tensors along the last dimension as a concatenation."""
    for function, node in expressions(module):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) == "torch.stack"
            and len(node.args) == 1
        ):
            items = node.args[0]
            if (
                isinstance(items, ast.Tuple | ast.List)
                and "dim=-1" in module.text(node)
                and len(node.keywords) == 1
            ):
                parts = ", ".join(f"({module.text(item)}).unsqueeze(-1)" for item in items.elts)
                yield exchange(function, module, node, f"torch.cat([{parts}], dim=-1)")


def _softmax(module: Module) -> Iterator[Site]:
    """Write `softmax` of torch as the method of the tensor."""
    names = ("nn.functional.softmax", "F.softmax", "torch.softmax", "torch.nn.functional.softmax")
    for function, node in expressions(module):
        if (
            isinstance(node, ast.Call)
            and ast.unparse(node.func) in names
            and isinstance(node.args[0], ast.Name)
        ):
            rest = ", ".join(map(module.text, (*node.args[1:], *node.keywords)))
            yield exchange(function, module, node, f"{node.args[0].id}.softmax({rest})")


def _index(module: Module) -> Iterator[Site]:
    """Write `x.unsqueeze(1)` as an index."""
    forms = {"1": "[:, None]", "0": "[None]", "-1": "[..., None]", "2": "[:, :, None]"}
    for function, node in expressions(module):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "unsqueeze"
        ):
            axis = ast.unparse(node.args[0]) if len(node.args) == 1 else ""
            if (
                axis in forms
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id != "torch"
            ):
                yield exchange(function, module, node, f"{node.func.value.id}{forms[axis]}")


def _size(module: Module) -> Iterator[Site]:
    """Write `x.shape` as a call, where it is taken apart."""
    for function in _forwards(module):
        for node in ast.walk(function.node):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
                value = node.value
                if (
                    isinstance(value, ast.Attribute)
                    and value.attr == "shape"
                    and isinstance(value.value, ast.Name)
                ):
                    yield exchange(function, module, value, f"{value.value.id}.size()")


def _joined(module: Module) -> Iterator[Site]:
    """Return what the last assignment makes, without a name for it."""
    for place in returns(module):
        body = place.function.node.body
        before = body[-2] if len(body) > 1 else None
        if (
            isinstance(before, ast.Assign)
            and isinstance(place.value, ast.Name)
            and len(before.targets) == 1
            and isinstance(before.targets[0], ast.Name)
            and before.targets[0].id == place.value.id
        ):
            edits = (
                module.replace(before, f"return {module.text(before.value)}"),
                module.replace(place.statement, ""),
            )
            yield Site(place.function.name, before.lineno, edits, "last assignment returned")


def _split(module: Module) -> Iterator[Site]:
    """Give the returned value a name first."""
    for place in returns(module):
        if not isinstance(place.value, ast.Name):
            text = indented(
                module, place.statement, f"result = {module.text(place.value)}\nreturn result"
            )
            edit = module.replace(place.statement, text)
            yield Site(place.function.name, place.statement.lineno, (edit,), "returned value named")


def _sequential(module: Module) -> Iterator[Site]:
    """Call the layers of an `nn.Sequential` one after the other."""
    for place in returns(module):
        containers = {
            ast.unparse(node.targets[0])
            for owner in [place.function.owner]
            if owner is not None
            for node in ast.walk(owner)
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
            if ast.unparse(node.value.func) in ("nn.Sequential", "torch.nn.Sequential")
        }
        for statement in place.function.node.body:
            call = statement.value if isinstance(statement, ast.Assign | ast.Return) else None
            if (
                isinstance(call, ast.Call)
                and ast.unparse(call.func) in containers
                and len(call.args) == 1
            ):
                layers, argument = ast.unparse(call.func), module.text(call.args[0])
                loop = f"output = {argument}\nfor layer in {layers}:\n    output = layer(output)"
                text = f"{loop}\nreturn output"
                if isinstance(statement, ast.Assign):
                    text = f"{loop}\n{module.text(statement.targets[0])} = output"
                if not re.search(
                    r"\b(output|layer)\b", "".join(map(ast.unparse, place.function.node.body))
                ):
                    edit = module.replace(statement, indented(module, statement, text))
                    yield Site(
                        place.function.name,
                        statement.lineno,
                        (edit,),
                        f"layers of {layers} called in turn",
                    )


def _fused(module: Module) -> Iterator[Site]:
    """Compute attention whose weights nobody asks for by PyTorch's function, without a mask."""
    for function in module.functions:
        text = module.text(function.node)
        if text.count("softmax(dim=-1)") != 1 or "fused_attn" not in text:
            continue
        for block, position in _statements(function):
            first = block[position]
            if module.text(first) != "q = q * self.scale" or position + 1 >= len(block):
                continue
            lines = [module.text(statement) for statement in block[position:]]
            plain = [
                "q = q * self.scale",
                "attn = q @ k.transpose(-2, -1)",
                "attn = attn.softmax(dim=-1)",
                "attn = self.attn_drop(attn)",
                "x = attn @ v",
            ]
            if lines[:5] == plain:
                rate = "self.attn_drop.p if self.attn_drop.training else 0.0"
                fused = "torch.nn.functional.scaled_dot_product_attention"
                new = f"x = {fused}(q, k, v, dropout_p={rate}, scale=self.scale)"
                edits = (
                    module.replace(first, new),
                    *(module.replace(s, "") for s in block[position + 1 : position + 5]),
                )
                yield Site(function.name, first.lineno, edits, "attention by PyTorch's function")


def _recipe(
    name: str,
    finder: Finder,
    contains: bytes = b"",
    count: int = 3,
    packages: tuple[str, ...] = MIXED,
) -> Recipe:
    return Recipe(name, RIGHT, "", finder, count, (contains,) if contains else (), packages)


RECIPES = (
    _recipe("local-renamed", _rename, count=4),
    _recipe("operands-commuted", _commute, count=4),
    _recipe("return-in-else", _else_of_return),
    _recipe("else-taken-away", _return_of_else, b"else"),
    _recipe("moved-out", _moved_out),
    _recipe("docstring", _docstring),
    _recipe("comment", _comment, count=2),
    _recipe("error-message", _message, b"raise"),
    _recipe("view-to-reshape", _method("view", "reshape"), b".view("),
    _recipe("square", _square),
    _recipe("if-statement", _if_statement),
    _recipe("if-expression", _if_expression, b"else"),
    _recipe("branches-exchanged", _exchanged_branches, b"else"),
    _recipe("loop", _loop),
    _recipe("super-named", _super, b"super()"),
    _recipe("annotation", _annotation, b"import torch\n"),
    _recipe("matmul-to-einsum", _matmul, b"torch.matmul(", packages=("transformers", "diffusers")),
    _recipe("einsum-to-matmul", _einsum, b"einsum"),
    _recipe("matmul-to-operator", _operator, b"torch.matmul("),
    _recipe("cat-renamed", _concatenate, b"rotate_half", packages=("transformers",)),
    _recipe("stack-to-cat", _concatenation, b"torch.stack"),
    _recipe("softmax-method", _softmax, b"softmax("),
    _recipe("unsqueeze-to-index", _index, b".unsqueeze("),
    _recipe("shape-to-size", _size, b".shape"),
    _recipe("assignment-returned", _joined),
    _recipe("return-named", _split),
    _recipe("sequential-unrolled", _sequential, b"nn.Sequential("),
    _recipe("fused-attention", _fused, b"fused_attn", packages=("timm",)),
)
