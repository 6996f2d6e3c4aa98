"""The rewriting of a match that holds under conditions of the source: mode version over a range of
statements, or substitute where no condition has to be tested.

The statements from the first matched one to that of the output become the other branch, unchanged;
the kernel runs where the conditions hold. The conditions are tested, and the kernel's arguments
read, before the first of these statements.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from regraft.matching.result import Test
from regraft.matching.uses import uses
from regraft.rewriting.assignments import target_name
from regraft.rewriting.kernel_call_source import Renderer
from regraft.rewriting.single_output import Patch
from regraft.rewriting.statement_range import RangeRewriter
from regraft.source.layout import Layout, indent_unit, indentation, without_parentheses
from regraft.source.syntax_iterators import defaults
from regraft.source.text import Edit, Span
from regraft.structure import guards
from regraft.structure.calls import own_op
from regraft.structure.guards import Atom, Guard
from regraft.structure.values_and_nodes import Node

_UNSKIPPABLE = (ast.Raise, ast.Return, ast.Break, ast.Continue, ast.Assert, ast.Delete)
_TESTABLE = (
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.Compare,
    ast.UnaryOp,
    ast.expr_context,
    ast.cmpop,
    ast.unaryop,
)


class GuardedRewriter(RangeRewriter):
    """A maker of the patch of one match under conditions, over the range of statements from the
    first matched one to that of the output.

    In mode version the patch is `if <conditions>:` with the kernel, and the range as the other
    branch; where no condition has to be tested the kernel replaces the range (substitute).
    """

    def patch(self) -> Patch:
        """Return the patch that replaces the range by the kernel call, under an `if` with its
        conditions where there are any; the file is not changed. Raises Withheld where that is not
        safe."""
        root = self.root.expr
        if not isinstance(root, ast.expr):
            raise self._withholding("the last step is an in-place statement", self.root)
        self._check_places(root, self.root)
        for node in self.match.nodes:
            self._statement_number(node)
        if self._is_versioned():
            raise self._withholding(
                "the kernel already runs in the other branch, under other conditions", self.root
            )
        self._check_skipped()
        span = without_parentheses(self.source, self.source.span(root))
        statements = self._range_statements
        indent = indentation(self.source, self.source.span(statements[0]).start)
        renderer = Renderer(
            self.match,
            self.imports,
            span,
            (),
            {},
            time=self._range_start,
            can_run=lambda node: self._can_run(node.guard),
        )
        condition = " and ".join(self._conditions(renderer))
        layout = Layout(self.source, span, indent + indent_unit(self.source) * bool(condition))
        call = renderer.call(self.match.pattern.target, layout.call)
        if condition:
            fast = self._kernel_statement(statements[-1], span, call, layout.indent)
            return self._branching_patch(statements, condition, [fast], renderer.used)
        return self._unconditional_patch(statements, span, call, renderer.used)

    def _unconditional_patch(
        self, statements: list[ast.stmt], span: Span, call: str, used: set[str]
    ) -> Patch:
        """Return the patch that replaces statements by the last of them, with the kernel call in
        the place of `span`. used: the qualified names to import."""
        range_span = Span(
            self.source.span(statements[0]).start, self.source.span(statements[-1]).end
        )
        self._check_comments(range_span, self.root)
        self._block_lines(statements)
        text = self._kernel_statement(statements[-1], span, call, "").rstrip("\r\n")
        edits = (Edit(range_span, text),)
        return Patch(self.match, "substitute", edits, range_span, frozenset(used))

    # what the fast branch leaves out

    def _is_versioned(self) -> bool:
        """Return whether an earlier rewrite already made the range an alternative of the same
        kernel: it is in the `else` of an `if` whose body calls the kernel, or after an `if` whose
        body calls the kernel and returns."""
        kernel = self.match.pattern.kernel
        first = self._range_statements[0]
        for outer in ast.walk(self.match.body.node):
            if not isinstance(outer, ast.If) or not any(
                self._calls(statement, kernel) for statement in outer.body
            ):
                continue
            returns = isinstance(outer.body[-1], ast.Return) and outer in self._preceding_statements
            if returns or any(
                ast_node is first for branch in outer.orelse for ast_node in ast.walk(branch)
            ):
                return True
        return False

    def _calls(self, statement: ast.stmt, kernel: str) -> bool:
        """Return whether a statement calls the kernel of this qualified name, or a vendored copy of
        it."""
        calls = (ast_node for ast_node in ast.walk(statement) if isinstance(ast_node, ast.Call))
        callees = (self.imports.names.resolve(call.func) or "" for call in calls)
        return any(kernel in (callee, own_op(callee)) for callee in callees)

    def _check_skipped(self) -> None:
        """Raise Withheld where something is lost if only the kernel runs and the range does not: an
        effect, a value or a name that is used later, a call of a method that a subclass may
        override, or a `return` or the like."""
        self._check_values()
        self._check_names()
        self._check_methods()
        self._check_statements()

    def _check_values(self) -> None:
        """Raise Withheld where a node of the range that may run under the conditions does something
        that the kernel does not.

        That is an unmatched node with an effect or whose value is used later, or an unmatched use
        of the value of a matched inner node.
        """
        for node in self._range_nodes:
            if not self._can_run(node.guard):
                continue
            if node not in self.matched:
                self._check_unmatched(node)
            elif node is not self.root:
                self._check_uses(node)

    def _check_unmatched(self, node: Node) -> None:
        """Raise Withheld where a node that the kernel does not replace has an effect or draws
        random numbers, or its value is used after the range."""
        if node.effect or node.random:
            raise self._withholding(
                "a step in between may have effects, or leave the function", node
            )
        if any(
            use.time > self.root.time and self._can_run(guard) for guard, use in uses(node.output)
        ):
            raise self._withholding("a value that is computed in between is used later", node)

    def _check_uses(self, node: Node) -> None:
        """Raise Withheld where an unmatched node that may run under the conditions uses the value
        of `node`, unless only matched nodes use what it reads."""
        for guard, use in uses(node.output):
            if use in self.matched or not self._can_run(guard):
                continue
            if not self._only_for_match(use):
                raise self._withholding(f"{use.spelling} of an inner value is read", use)

    def _check_names(self) -> None:
        """Raise Withheld where a name that the range binds to a value that it does not compute (`y
        = x`) is read or changed outside of the range."""
        bound = self._bound_names()
        inside_ids = {
            id(ast_node) for outer in self._range_statements for ast_node in ast.walk(outer)
        }
        ast_nodes = list(ast.walk(self.match.body.node))
        changed_ids = {
            id(ast_node.target) for ast_node in ast_nodes if isinstance(ast_node, ast.AugAssign)
        }
        for ast_node in ast_nodes:
            if not isinstance(ast_node, ast.Name) or ast_node.id not in bound:
                continue
            is_read = not isinstance(ast_node.ctx, ast.Store) or id(ast_node) in changed_ids
            if is_read and id(ast_node) not in inside_ids:
                raise self._withholding(
                    f"{ast_node.id} is bound in between and read elsewhere", self.root
                )

    def _check_methods(self) -> None:
        """Raise Withheld where the range calls an inlined method of `self`, under the conditions of
        the kernel, which would no longer be called: a subclass may override it."""
        first = len(self._preceding_statements) - len(self._range_statements)
        for site, name in self.match.body.inlined.items():
            is_in_range = self._statement_numbers.get(id(site), -1) >= first
            if not name.startswith("self.") or not is_in_range:
                continue
            if self._may_run([node for node in self._range_nodes if node.expr is site]):
                raise self._withholding(
                    f"{name}, which a subclass may override, would not be called", self.root
                )

    def _check_statements(self) -> None:
        """Raise Withheld where the range has, before its last statement, a `raise`, `return`,
        `break`, `continue`, `assert` or `del` that may run under the conditions of the kernel."""
        last = self._range_statements[-1]
        for ast_node in (inner for outer in self._range_statements for inner in ast.walk(outer)):
            if not isinstance(ast_node, _UNSKIPPABLE) or ast_node is last:
                continue
            if self._may_run(
                [node for node in self._range_nodes if node.statement.node is ast_node]
            ):
                raise self._withholding(
                    f"a {type(ast_node).__name__.lower()} stands in between", self.root
                )

    def _may_run(self, nodes: Sequence[Node]) -> bool:
        """Return whether one of the nodes may run under the conditions of the kernel; True for no
        nodes."""
        return not nodes or any(self._can_run(node.guard) for node in nodes)

    def _only_for_match(self, use: Node) -> bool:
        """Return whether a node of the range is used by matched nodes only, like the dtype of a
        cast."""
        return use in self._range_nodes and all(
            reader in self.matched for reader in use.output.every_use()
        )

    def _bound_names(self) -> set[str]:
        """Return the names that the range binds to values that it does not compute (`y = x`),
        except for the name of the output. Uses of these values do not tell which name was read."""
        outputs = {node.output for node in self._range_nodes}
        names = {
            name
            for name, events in self.match.body.log.items()
            if any(
                self._range_start <= event.time <= self.root.time
                and event.statement
                and event.value not in outputs
                for event in events
            )
        }
        return names - {target_name(self._range_statements[-1])}

    # conditions

    def _conditions(self, renderer: Renderer) -> list[str]:
        """Return the conditions of the `if` before the range as source texts, each once: tests of
        layers by an op, then the guards of the source. Raise Withheld for a guard that cannot be
        tested there.

        renderer: writes the layers and functions, and notes the names to import.
        """
        texts = [
            f"{renderer.spell(test.predicate)}({renderer.value(test.subject)})"
            for test in self.match.tests
            if isinstance(test, Test)
        ]
        for part in self._needed_guards:
            self._check_testable(part)
            text = guards.text(part)
            texts.append(f"({text})" if isinstance(part, guards.Or) else text)
        return list(dict.fromkeys(texts))

    def _check_testable(self, guard: Guard) -> None:
        """Raise Withheld where a test in a guard, such as `x is None`, may have another result
        before the range than in its place (`_is_testable`)."""
        for atom in guards.atoms(guard):
            if not self._is_testable(atom):
                raise self._withholding(
                    f"`{atom.text}` cannot be tested before the first step", self.root
                )

    def _is_testable(self, atom: Atom) -> bool:
        """Return whether a test in a guard certainly has the same result before the range as in its
        place. False for a text that is more than comparisons of names, attributes and constants."""
        try:
            expression = ast.parse(atom.text, mode="eval").body
        except SyntaxError:
            return False
        ast_nodes = list(ast.walk(expression))
        names = [ast_node for ast_node in ast_nodes if isinstance(ast_node, ast.Name)]
        if not all(map(_is_simple_part, ast_nodes)):
            return False
        if not all(self._is_stable(name, atom.time) for name in names):
            return False
        is_fixed = atom.kind == "none" or all(self._is_immutable(name) for name in names)
        reads_attribute = any(isinstance(ast_node, ast.Attribute) for ast_node in ast_nodes)
        return atom.time > 0 and (
            (is_fixed and not reads_attribute) or not self._can_change_attributes(atom.time)
        )

    def _is_stable(self, name: ast.Name, time: int) -> bool:
        """Return whether a name certainly has one value at the start of the range and at `time`;
        False for a name that a function declares `global`, and for one whose value at the start is
        unknown. True for any other name that the function never binds."""
        body = self.match.body
        if name.id in self.imports.names.rebound:
            return False
        if name.id not in body.log:
            return True
        binding = body.reaching(name.id, self._range_start)
        if binding is None or binding.origin == "unknown":
            return False
        return binding is body.reaching(name.id, time)

    def _is_immutable(self, name: ast.Name) -> bool:
        """Return whether a name certainly holds a number, a string or None at the start of the
        range: by the value bound to it, or as a parameter with a constant default or a `bool`
        annotation."""
        value = self.match.body.reaching(name.id, self._range_start)
        if value is None:
            return False
        if value.kind in ("int", "bool", "str", "none", "scalar"):
            return True
        return value.origin == "param" and _is_plain_parameter(
            self.match.body.node.args, value.name
        )

    def _can_change_attributes(self, time: int) -> bool:
        """Return whether an unmatched node that may run between the start of the range and `time`
        has an effect, and so may change attributes."""
        return any(
            node.effect and self._can_run(node.guard)
            for node in self.match.between(self._range_start, time)
        )


def _is_simple_part(ast_node: ast.AST) -> bool:
    """Return whether a syntax node of a test may be tested before the range: a name, attribute,
    constant, unary operator or comparison that is not chained."""
    is_chained = isinstance(ast_node, ast.Compare) and (
        len(ast_node.ops) > 1 or isinstance(ast_node.left, ast.Compare)
    )
    return isinstance(ast_node, _TESTABLE) and not is_chained


def _is_plain_parameter(arguments: ast.arguments, name: str) -> bool:
    """Return whether the parameter `name` has a constant as its default, or an annotation that
    contains `bool`."""
    default_by_name = {parameter.arg: default for parameter, default in defaults(arguments)}
    if isinstance(default_by_name.get(name), ast.Constant):
        return True
    parameters = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
    annotations = (parameter.annotation for parameter in parameters if parameter.arg == name)
    return any(
        annotation is not None and "bool" in ast.unparse(annotation) for annotation in annotations
    )
