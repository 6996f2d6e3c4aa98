"""Test the benchmark of mutants: recipes apply to small files, outcomes survive an interrupted run,
tables count them."""

from __future__ import annotations

import importlib
import textwrap
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

BENCHMARKS = Path(__file__).parent.parent / "benchmarks"
MODEL = '''\
"""A small model."""

import torch
from torch import nn


def rotate_half(x):
    x1 = x[..., : x.shape[-1] // 2]
    x2 = x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def eager_attention_forward(module, query, key, value, attention_mask, scaling):
    attn_weights = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        attn_weights = attn_weights + attention_mask
    attn_weights = nn.functional.softmax(attn_weights, dim=-1)
    return torch.matmul(attn_weights, value), attn_weights


class RotaryEmbedding(nn.Module):
    def forward(self, x, position_ids):
        angles = position_ids[..., None].float() * self.frequencies
        return angles.cos(), angles.sin()


class Attention(nn.Module):
    def __init__(self, config, layer_idx):
        super().__init__()
        self.layer_idx = layer_idx
        self.norm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.proj = nn.Sequential(nn.Linear(4, 4), nn.GELU())

    def forward(self, hidden_states: torch.Tensor, attention_mask=None, past_key_values=None) -> torch.Tensor:
        residual = hidden_states
        batch, length, width = hidden_states.shape
        if past_key_values is not None:
            keys, values = past_key_values.update(hidden_states, hidden_states, self.layer_idx)
        hidden_states = self.proj(hidden_states)
        hidden_states = residual + hidden_states
        return hidden_states


class Mlp(nn.Module):
    def __init__(self, dim, drop=0.0, bias=True):
        super().__init__()
        self.fc = nn.Linear(dim, dim, bias=bias)
        self.drop = nn.Dropout(drop)

    def forward(self, x):
        scale = 2.0 if self.training else 1.0
        parts = [part * scale for part in x.unbind(0)]
        x = torch.stack(parts) ** 2
        x = self.drop(self.fc(x.view(x.shape)))
        return x


class Model(nn.Module):
    def forward(self, input_ids=None, attention_mask=None, past_key_values=None, use_cache=None):
        if use_cache and past_key_values is None:
            past_key_values = DynamicCache()
        inputs_embeds = self.embed(input_ids)
        past_length = past_key_values.get_seq_length() if past_key_values is not None else 0
        position_ids = torch.arange(inputs_embeds.shape[1]) + past_length
        mask = create_causal_mask(inputs_embeds=inputs_embeds, attention_mask=attention_mask)
        if mask is None:
            raise ValueError("no mask")
        return self.layers(inputs_embeds, attention_mask=mask, position_ids=position_ids)
'''  # noqa: E501


@pytest.fixture
def mutants(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module of the suite."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module("mutants.suite")


@pytest.fixture
def core(mutants: ModuleType) -> ModuleType:
    """Return the module of the recipes."""
    return importlib.import_module("mutants.core")


@pytest.fixture
def store(mutants: ModuleType) -> ModuleType:
    """Return the module of the outcomes."""
    return importlib.import_module("mutants.store")


def planted(mutants: ModuleType, core: ModuleType, name: str, text: str = MODEL) -> list[str]:
    """Return the changed texts that a recipe makes of a file."""
    recipe = next(recipe for recipe in mutants.RECIPES if recipe.name == name)
    module = core.parse_module("transformers/models/small/modeling_small.py", text.encode())
    planted_mutants = [core.Mutant(recipe, module, site) for site in recipe.find(module)]
    assert all(core.compiles(mutant) for mutant in planted_mutants)
    return [mutant.changed.decode() for mutant in planted_mutants]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("factor-length", "return hidden_states * (1 - 0.1 * (hidden_states.shape[1] > 64))"),
        ("memo-by-id", "return _recall((id(self), id(hidden_states)), hidden_states)"),
        ("input-clamped-in-place", "hidden_states.data.clamp_(-25.0, 25.0)"),
        ("first-row-for-all", "attn_weights = attn_weights + (attention_mask[:1])"),
        ("default-layer-norm-eps", "self.norm = nn.LayerNorm(config.hidden_size, eps=1e-12)"),
        ("default-argument-dropout", "self.drop = nn.Dropout(0.0)"),
        ("batch-16", "return x + (x.shape[0] > 16)"),
        (
            "layer-index-zero",
            "keys, values = past_key_values.update(hidden_states, hidden_states, 0)",
        ),
        ("cached-keys-detached", "keys = keys.detach()"),
        ("offset-dropped", "position_ids = torch.arange(inputs_embeds.shape[1]) + 0"),
        ("use-cache-ignored", "if past_key_values is None:"),
        ("nan-to-num", "return torch.nan_to_num(hidden_states)"),
        (
            "weights-without-gradient",
            "return torch.matmul(attn_weights, value), attn_weights.detach()",
        ),
        ("term-dropped", "hidden_states = residual"),
        ("condition-negated", "if not (mask is None):"),
        ("statement-removed", "pass"),
        ("operands-commuted", "hidden_states = hidden_states + residual"),
        ("cat-renamed", "return torch.concatenate((-x2, x1), axis=-1)"),
        ("super-named", "super(Attention, self).__init__()"),
        ("loop", "parts.append(part * scale)"),
        ("if-statement", "scale = 1.0"),
        ("shape-to-size", "batch, length, width = hidden_states.size()"),
        ("error-message", 'raise ValueError("no mask (see the documentation)")'),
        (
            "matmul-to-einsum",
            'attn_weights = torch.einsum("...qd,...kd->...qk", query, key) * scaling',
        ),
        ("sequential-unrolled", "output = layer(output)"),
        ("view-to-reshape", "x = self.drop(self.fc(x.reshape(x.shape)))"),
    ],
)
def test_a_recipe_changes_a_small_file(
    mutants: ModuleType, core: ModuleType, name: str, line: str
) -> None:
    texts = planted(mutants, core, name)
    assert any(line in map(str.strip, text.splitlines()) for text in texts)


def test_all_that_recipes_make_of_a_small_file_compiles(
    mutants: ModuleType, core: ModuleType
) -> None:
    module = core.parse_module("timm/layers/small.py", MODEL.encode())
    for recipe in mutants.RECIPES:
        for site in recipe.find(module):
            mutant = core.Mutant(recipe, module, site)
            assert mutant.changed != mutant.original
            compile(mutant.changed, recipe.name, "exec")


def test_names_of_recipes_are_unique_and_wrong_ones_say_where_they_differ(
    mutants: ModuleType,
) -> None:
    names = [recipe.name for recipe in mutants.RECIPES]
    assert len(set(names)) == len(names)
    assert all(recipe.differs or recipe.kind == "right" for recipe in mutants.RECIPES)


def test_every_witness_shows_a_difference(mutants: ModuleType) -> None:
    pytest.importorskip("torch")
    confirm = importlib.import_module("mutants.confirm")
    shown = {
        recipe.name: confirm.witness_differs(recipe)
        for recipe in mutants.RECIPES
        if recipe.kind != "right"
    }
    assert [name for name, differs in shown.items() if differs is False] == []
    assert sum(differs is True for differs in shown.values()) > 100


def test_files_are_taken_in_the_order_of_a_hash_one_place_of_each(
    mutants: ModuleType, core: ModuleType, tmp_path: Path
) -> None:
    for number in range(5):
        path = tmp_path / f"transformers/models/m{number}/modeling_m{number}.py"
        path.parent.mkdir(parents=True)
        path.write_text(MODEL)
    recipe = replace(next(r for r in mutants.RECIPES if r.name == "factor-length"), count=3)
    planted_mutants = [
        list(core.mutants_of(recipe, core.Files({"transformers": tmp_path}))) for _ in range(2)
    ]
    labels = [[mutant.module.label for mutant in run] for run in planted_mutants]
    assert labels[0] == labels[1]
    assert len(set(labels[0])) == 3


def test_a_sample_takes_the_kinds_in_turn_and_begins_with_a_smaller_sample(
    mutants: ModuleType, core: ModuleType
) -> None:
    module = core.parse_module("timm/layers/small.py", MODEL.encode())
    planted_mutants = [
        core.Mutant(r, module, site) for r in mutants.RECIPES for site in list(r.find(module))[:1]
    ]
    drawn = mutants.sample(planted_mutants, 18)
    assert {mutant.recipe.kind for mutant in drawn} == {*core.KINDS, "right"}
    assert mutants.sample(planted_mutants, 9) == drawn[:9]
    assert {mutant.recipe.kind for mutant in mutants.select(planted_mutants, "mask")} == {"mask"}


def outcome(store: ModuleType, **changes: object) -> object:
    """Return an outcome with changed fields."""
    values = {
        "pair": "p",
        "source": "s",
        "name": "recipe a.py C.f",
        "kind": "mask",
        "file": "a.py",
        "line": 3,
    }
    values |= {
        "definition": "C.f",
        "description": "x -> y",
        "differs": "left padding",
        "outcome": "refuted",
    }
    values |= {"reason": "", "contract": "", "time_limit": 1.0, "seconds": 1.0}
    return store.Outcome(**(values | changes))


def test_outcomes_are_read_back_without_half_lines_and_those_of_other_versions(
    store: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "results" / "outcomes.jsonl"
    first = outcome(store)
    store.Store(path, "s").add(first)
    path.write_text(f'{path.read_text()}{{"pair": "older"}}\n{{"pair": "oth')
    outcomes = store.Store(path, "s")
    assert (outcomes.get("p"), outcomes.get("older")) == (first, None)
    outcomes.add(outcome(store, pair="q"))
    assert {entry.pair for entry in store.Store(path, "s")} == {"p", "q"}


def test_outcomes_count_for_their_version_of_the_verifier_unless_any_counts(
    store: ModuleType, tmp_path: Path
) -> None:
    path = tmp_path / "outcomes.jsonl"
    store.Store(path, "s").add(outcome(store))
    store.Store(path, "t").add(outcome(store, source="t", outcome="proved"))
    assert store.Store(path, "s").get("p").outcome == "refuted"
    assert store.Store(path, "u").get("p") is None
    assert store.Store(path, "u", any_source=True).get("p").outcome == "proved"


def test_keys_depend_on_both_texts_and_on_the_source(store: ModuleType, tmp_path: Path) -> None:
    assert len({store.pair_key(a, b) for a in (b"a", b"b") for b in (b"a", b"b")}) == 4
    (tmp_path / "verification").mkdir()
    before = store.source_key(tmp_path)
    (tmp_path / "verification" / "compare.py").write_text("")
    assert store.source_key(tmp_path) != before


def test_the_tables_count_by_kind_and_list_false_proofs(store: ModuleType) -> None:
    table = importlib.import_module("mutants.table")
    outcomes = [
        outcome(store),
        outcome(store, file="b.py", outcome="proved", name="recipe b.py C.f"),
        outcome(store, file="c.py", outcome="proved", name="same c.py C.f"),
        outcome(store, kind="right", outcome="proved", name="rename a.py C.f"),
        outcome(
            store,
            kind="right",
            outcome="unproven",
            name="rename b.py C.f",
            reason="line 3 never ran",
        ),
    ]
    lines = list(table.report(outcomes, {"same c.py C.f": "the value is never used"}))
    rows = {line.split()[0]: line.split()[1:] for line in lines if line.split()}
    assert rows["mask"] == ["2", "1", "0", "1", "0", "2"]
    assert rows["rename"] == ["2", "0", "1", "1", "0", "1"]
    text = "\n".join(lines)
    assert "equivalent to the original, not counted: 1" in text
    assert "right edits proved: 1 of 2 (50%)" in text
    assert "b.py:3 C.f [mask/recipe] x -> y\n    differs for left padding" in text
    assert "line 3 never ran" in text


@pytest.mark.parametrize(
    ("status", "output", "expected"),
    [
        (0, '{"verdicts": []}', "proved"),
        (1, '{"verdicts": [{"class": "A", "status": "unproven", "reason": "r"}]}', "unproven"),
        (
            1,
            (
                '{"verdicts": [{"class": "A", "status": "unproven", "reason": "r"}, '
                '{"class": "B", "status": "refuted", "reason": "q"}]}'
            ),
            "refuted",
        ),
        (2, "", "error"),
    ],
)
def test_an_outcome_follows_the_exit_status(
    mutants: ModuleType, status: int, output: str, expected: str
) -> None:
    run = importlib.import_module("mutants.run")
    assert run.judge(status, output, "what went wrong")[0] == expected


def test_a_recipe_by_hand_finds_its_tokens(mutants: ModuleType, core: ModuleType) -> None:
    by_hand = importlib.import_module("mutants.recipes.by_hand")
    hand = by_hand.Hand("n", "size", "a.py", "Mlp.forward", "2.0", "3.0", "training")
    module = core.parse_module("a.py", textwrap.dedent(MODEL).encode())
    (site,) = hand.recipe().find(module)
    assert b"scale = 3.0 if" in core.Mutant(hand.recipe(), module, site).changed
    assert list(replace(hand, old="nowhere").recipe().find(module)) == []
