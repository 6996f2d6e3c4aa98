"""Test the notation as the paper prints it (ISSTA 2024, Figures 1-5) and as our rule files use
it."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from regraft.dsl import (
    parse_fragment,
    parse_rule,
    parse_transformation,
    print_condition,
    print_operand,
    print_rule,
)
from regraft.dsl import syntax as s

RULE = """\
rule dropout-add-layernorm
  summary "Dropout, residual add and LayerNorm run as three passes over memory"
  safety  numeric
  needs   torch >= 2.4
init
  torch.nn.Dropout($p) -> $drop;  torch.nn.LayerNorm($shape, eps=$eps) -> $norm
  => keep
forward
  $drop($x) -> $a;  $a + $residual -> $b;  $norm($b) -> $y
  => regraft.ops.dropout_add_layer_norm($x, $residual, $norm.weight, $norm.bias, p=$drop.p, eps=$norm.eps) -> $y
where
  used_once($a), used_once($b)
"""  # noqa: E501


def var(name: str) -> s.Var:
    """Return a variable."""
    return s.Var(name)


def call(callee: str, *args: s.Operand, **keywords: s.Operand) -> s.Apply:
    """Return a call of a dotted name."""
    return s.Apply(s.Ref(callee), args, tuple(keywords.items()))


def fragment(text: str) -> s.Fragment:
    """Parse a text that must be a fragment."""
    parsed = parse_fragment(text)
    assert not isinstance(parsed, s.SyntaxProblem), parsed
    return parsed


def transformation(text: str) -> s.Transformation:
    """Parse a text that must be a transformation."""
    parsed = parse_transformation(text)
    assert isinstance(parsed, s.Transformation), parsed
    return parsed


def rule(text: str) -> s.RuleSyntax:
    """Parse a text that must be a rule."""
    parsed = parse_rule(text)
    assert isinstance(parsed, s.RuleSyntax), parsed
    return parsed


def operand(text: str) -> s.Operand:
    """Return the operand that a text denotes."""
    (node,) = fragment(f"f({text})")
    assert isinstance(node, s.Node)
    return node.apply.args[0]


def condition(text: str) -> s.Condition:
    """Return the guard that a text denotes."""
    (node,) = fragment(f"f() if {text}")
    assert isinstance(node, s.Node)
    assert node.guard is not None
    return node.guard


FUSED = s.Transformation(
    (
        s.Node(call("torch.nn.Dropout", var("a")), (var("x"),)),
        s.Node(s.Apply("+", (var("x"), var("i"))), (var("b"),)),
        s.Node(call("torch.nn.LayerNorm", var("b")), (var("y"),)),
    ),
    (s.Node(call("some.pkg.FusedOp", var("a"), var("i")), (var("y"),)),),
)


@pytest.mark.parametrize("arrow", ["=>", "==>", "===>", "⇒", "⟹"])
@pytest.mark.parametrize("to", ["->", "-->", "→", "⟶"])
@pytest.mark.parametrize("separator", ["; ", ";", "\n", "\n\n", ";\n", "\n;  ", " # why\n", "\r\n"])
def test_composition_rule(arrow: str, to: str, separator: str) -> None:
    nodes = [f"torch.nn.Dropout($a) {to} $x", f"$x + $i {to} $b", f"torch.nn.LayerNorm($b) {to} $y"]
    assert (
        transformation(f"{separator.join(nodes)} {arrow} some.pkg.FusedOp($a, $i) {to} $y") == FUSED
    )


def test_init_rule() -> None:
    parsed = transformation(
        "@torch.nn.Dropout($p) -> _; @torch.nn.LayerNorm($c, eps=$e) -> _ "
        "=> @some.pkg.FusedDropoutAddLayerNorm($c, $p, eps=$e) -> self.fused_norm"
    )
    dropout, norm = parsed.source
    assert dropout == s.Node(call("torch.nn.Dropout", var("p")), (s.Wildcard(),), layer=True)
    assert norm == s.Node(
        call("torch.nn.LayerNorm", var("c"), eps=var("e")), (s.Wildcard(),), layer=True
    )
    (fused,) = parsed.target
    assert isinstance(fused, s.Node)
    assert fused.outputs == (s.Ref("self.fused_norm"),)


@pytest.mark.parametrize(
    "target", ["_", "keep", "keep  # nothing to construct", "\n  keep\n", "_ ;"]
)
def test_empty_targets(target: str) -> None:
    assert transformation(f"f($x) -> $y => {target}").target == ()


def test_keep_is_a_name_elsewhere() -> None:
    assert transformation("f($x) => keep($x) -> keep").target == (
        s.Node(call("keep", var("x")), (s.Ref("keep"),)),
    )


def test_types_from_a_table() -> None:
    act = s.Item(s.Ref("ACT2FN"), s.Ref("config.hidden_act"))
    assert fragment("ACT2FN[config.hidden_act]($h) -> $h") == (
        s.Node(s.Apply(act, (var("h"),)), (var("h"),)),
    )
    layer = s.Node(s.Apply(act), (var("act"),), layer=True)
    assert fragment("@ACT2FN[config.hidden_act] -> $act") == (layer,)
    assert fragment("@ACT2FN[config.hidden_act]() -> $act") == (layer,)


def test_classes_methods_outputs_and_primes() -> None:
    assert fragment("SelfAttention($h, $m, mask=$x) -> $o") == (
        s.Node(call("SelfAttention", var("h"), var("m"), mask=var("x")), (var("o"),)),
    )
    assert fragment("self._split_heads($q, $n, $d) -> $q") == (
        s.Node(call("self._split_heads", var("q"), var("n"), var("d")), (var("q"),)),
    )
    assert fragment("f($s') -> $q, $k'', ($v, o)") == (
        s.Node(call("f", var("s'")), (var("q"), var("k''"), s.Group((var("v"), s.Ref("o"))))),
    )
    assert fragment("torch.nn.ReLU($h)") == (s.Node(call("torch.nn.ReLU", var("h"))),)


def test_constants() -> None:
    values = [True, False, None, 1, -1, 1.5, -0.5, 1e-5, 16, "cutlass", "it's", 'a"b\n', 0.5]
    text = 'True, False, None, 1, -1, 1.5, -0.5, 1e-5, 0x10, "cutlass", "it\'s", \'a"b\\n\', .5'
    (node,) = fragment(f"f({text})")
    assert isinstance(node, s.Node)
    assert node.apply.args == tuple(map(s.Const, values))
    assert fragment("f(bias=True, dim=-1)") == (
        s.Node(call("f", bias=s.Const(True), dim=s.Const(-1))),
    )


def test_star_is_a_wildcard_where_an_operand_starts_and_a_product_after_one() -> None:
    any_, a, b = s.Wildcard(), var("a"), var("b")
    assert operand("$a * $b") == s.Apply("*", (a, b))
    assert operand("* * *") == s.Apply("*", (any_, any_))
    assert operand("_ * $b") == operand("* * $b") == s.Apply("*", (any_, b))
    assert operand("$a ** *") == s.Apply("**", (a, any_))
    assert fragment("*") == (any_,)
    assert fragment("*; f($a) -> *; *") == (any_, s.Node(call("f", a), (any_,)), any_)
    assert fragment("*\n$a * $b -> $c\n*") == (
        any_,
        s.Node(s.Apply("*", (a, b)), (var("c"),)),
        any_,
    )
    assert fragment("*($a) -> _") == (s.Node(s.Apply(any_, (a,)), (any_,)),)


def test_precedence_is_that_of_python() -> None:
    a, b, c = map(var, "abc")
    assert operand("$a + $b * $c") == s.Apply("+", (a, s.Apply("*", (b, c))))
    assert operand("($a + $b) * $c") == s.Apply("*", (s.Apply("+", (a, b)), c))
    assert operand("$a - $b - $c") == s.Apply("-", (s.Apply("-", (a, b)), c))
    assert operand("$a ** $b ** $c") == s.Apply("**", (a, s.Apply("**", (b, c))))
    assert operand("-$a ** 2") == s.Apply("neg", (s.Apply("**", (a, s.Const(2))),))
    assert operand("-2 ** 2") == s.Apply("neg", (s.Apply("**", (s.Const(2), s.Const(2))),))
    assert operand("$a -1") == s.Apply("-", (a, s.Const(1)))
    assert operand("$a @ $b / -1") == s.Apply("/", (s.Apply("@", (a, b)), s.Const(-1)))
    assert operand("$a == $b") == s.Apply("==", (a, b))


def test_nested_operands_attributes_and_items() -> None:
    x = var("x")
    assert operand("torch.nn.LayerNorm($h + $i)") == call(
        "torch.nn.LayerNorm", s.Apply("+", (var("h"), var("i")))
    )
    assert operand("$x.to(torch.float32)") == s.Apply(s.Attr(x, "to"), (s.Ref("torch.float32"),))
    assert operand("$x.shape[-1:]") == s.Item(s.Attr(x, "shape"), s.Slice(s.Const(-1), None))
    assert operand("$x[$i:2]") == s.Item(x, s.Slice(var("i"), s.Const(2)))
    assert operand("($x,)") == s.Group((x,))
    assert operand("()") == s.Group(())
    assert operand("($x)") == x


def test_several_indices_use_the_calls_that_python_makes_of_them() -> None:
    index = s.Group((s.Ref("Ellipsis"), call("slice", s.Const(None), s.Const(2)), s.Const(0)))
    assert operand("$x[..., :2, 0]") == s.Item(var("x"), index)
    assert print_operand(s.Item(var("x"), index)) == "$x[..., :2, 0]"
    assert operand("$x[::2]") == s.Item(
        var("x"), call("slice", s.Const(None), s.Const(None), s.Const(2))
    )


def test_guards() -> None:
    (node,) = fragment("torch.nn.BatchNorm2d(h) -> h.2 if self.use_batch_norm and not (x is None)")
    guard = s.And(
        (s.Test(s.Ref("self.use_batch_norm")), s.Not(s.Test(s.Ref("x"), "is", s.Const(None))))
    )
    assert node == s.Node(call("torch.nn.BatchNorm2d", s.Ref("h")), (s.Ref("h.2"),), guard=guard)
    a, b, c = (s.Test(s.Ref(name)) for name in "abc")
    assert condition("a or b and c") == s.Or((a, s.And((b, c))))
    assert condition("(a or b) and c") == s.And((s.Or((a, b)), c))
    assert condition("not a and not\n b") == s.And((s.Not(a), s.Not(b)))
    assert condition("a  not   in (1, 2)") == s.Test(
        s.Ref("a"), "not in", s.Group((s.Const(1), s.Const(2)))
    )
    assert condition("a is not None") == s.Test(s.Ref("a"), "is not", s.Const(None))
    assert print_condition(s.Not(s.Or((a, s.And((b, c)))))) == "not (a or b and c)"


def test_newlines_do_not_end_a_node_inside_brackets_before_arrows_and_after_operators() -> None:
    text = "f($x,  # first\n  $y\n) \n\n -> $a,\n $b\n if c\n and d\n$a +\n $b -> $c"
    assert len(fragment(text)) == 2
    assert fragment(text) == fragment("f($x, $y) -> $a, $b if c and d; $a + $b -> $c")


def test_names_that_look_like_words_of_the_notation() -> None:
    assert operand("iff") == s.Ref("iff")
    assert operand("notable") == s.Ref("notable")
    assert operand("__x") == s.Ref("__x")
    parsed = rule(
        'rule r\n summary "s"\n safety exact\nforward\n forward($x) -> $y\n where + init -> $z\n =>'
        " keep"
    )
    assert [node.apply for node in parsed.forward[0].source if isinstance(node, s.Node)] == [
        call("forward", var("x")),
        s.Apply("+", (s.Ref("where"), s.Ref("init"))),
    ]


def test_a_rule_file() -> None:
    parsed = rule(RULE)
    assert (parsed.name, parsed.safety) == ("dropout-add-layernorm", "numeric")
    assert parsed.summary.startswith("Dropout, residual add")
    assert parsed.needs == (s.Need("torch", "2.4"),)
    assert [len(step.source) for step in (*parsed.init, *parsed.forward)] == [2, 3]
    assert parsed.init[0].target == ()
    assert parsed.where == (
        s.Predicate("used_once", (var("a"),)),
        s.Predicate("used_once", (var("b"),)),
    )
    (init,), (forward,) = parsed.init, parsed.forward
    assert init.at == s.Position(6, 3)
    assert [node.at for node in forward.source if isinstance(node, s.Node)] == [
        s.Position(9, 3),
        s.Position(9, 21),
        s.Position(9, 44),
    ]
    assert parsed.where[1].at == s.Position(12, 18)


@pytest.mark.parametrize(
    "change", [str.strip, lambda t: t.replace("\n", "\r\n"), lambda t: "\ufeff" + t]
)
def test_layout_of_the_file_is_free(change: object) -> None:
    assert callable(change)
    assert rule(change(RULE)) == rule(RULE)
    lines = [line.strip() for line in RULE.splitlines()]
    assert rule("\n\n# a comment\n".join(lines)) == rule(RULE)


def test_alternatives_and_constructions_repeat() -> None:
    head = 'rule r\nsafety exact\nsummary "s"\n'
    separate = rule(head + "init\na()=>keep\ninit\nb()=>c()\nforward f()=>g()\nforward h()=>k()")
    assert (
        rule(head + "init\na()=>keep; b()\n=> c()\nforward\nf()=>g()\nforward\nh()=>k()")
        == separate
    )
    assert (
        rule(head + "init\nb()=>c()\n\na()=>keep\nforward f()=>g()\nforward h()=>k()").init
        == separate.init[::-1]
    )
    assert len(separate.forward) == 2


def test_needs_with_and_without_versions() -> None:
    parsed = rule(
        'rule r\nsummary "s"\nsafety exact\nneeds torch >= 2.4, ab-c,\n  d >= 0.0.28.post1\nforward'
        " f()=>_"
    )
    assert parsed.needs == (s.Need("torch", "2.4"), s.Need("ab-c"), s.Need("d", "0.0.28.post1"))


def test_printed_rule() -> None:
    printed = print_rule(rule(RULE))
    assert printed.startswith("rule dropout-add-layernorm\n  summary ")
    assert (
        "  torch.nn.LayerNorm($shape, eps=$eps) -> $norm\n  => keep\nforward\n  $drop($x) -> $a\n"
        in printed
    )
    assert rule(printed) == rule(RULE)


def test_operators_without_a_spelling_are_refused() -> None:
    with pytest.raises(ValueError, match="no operator 'xor'"):
        print_operand(s.Apply("xor", (var("a"), var("b"))))


def test_printing_needs_no_parser() -> None:
    code = (
        "import sys, regraft.dsl as d; assert 'lark' not in sys.modules; d.parse_rule; assert"
        " 'lark' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_pack_of_rules_parses_quickly() -> None:
    parse_rule(RULE)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(20):
            parse_rule(RULE)
        times.append(time.perf_counter() - start)
    assert min(times) < 0.25  # 15 ms on an idle machine
