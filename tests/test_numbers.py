"""Test that numbers which make no sense are refused wherever a number is taken, before anything is
read or run."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

import regraft as api
from command_line import regraft
from regraft.cli import main
from regraft.configuration import ConfigurationError, read

ENDLESS = "9" * 400
NONSENSE = ("-1", "nan", "NaN", "inf", "-inf", "", "many", "1e999", ENDLESS)
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="the command needs torch"
)
# for each option that takes a number: the command without it, and the values that it refuses
REFUSED: dict[tuple[str, str], tuple[tuple[str, ...], tuple[str, ...]]] = {
    ("check", "--jobs"): (("check", "m.py"), (*NONSENSE, "1.5")),
    ("verify", "--time-limit"): (("verify", "m.py"), (*NONSENSE, "0", "-0.0", "1e300")),
    ("bench", "--rounds"): (("bench", "m.py:build"), (*NONSENSE, "0", "1", "1.5")),
    ("bench", "--threads"): (("bench", "m.py:build"), (*NONSENSE, "0", "1.5", "100000")),
    ("profile", "--threads"): (("profile", "m.py:build"), (*NONSENSE, "0", "1.5", "100000")),
    ("split", "--threads"): (
        ("split", "m.py:build", "-o", "net"),
        (*NONSENSE, "0", "1.5", "100000"),
    ),
}
FAILS = "def build():\n    raise ValueError\n"
LIMITS = (*NONSENSE, "0", "0ms", "0%", "-5%", "nan%", "nanms", "infms", f"{ENDLESS}ms", "5", "5 kg")


def numeric_options() -> Iterator[tuple[str, str]]:
    """Yield the command and the name of each option that takes a number."""
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        commands = command.commands.values() if isinstance(command, click.Group) else (command,)
        for parameter in (parameter for each in commands for parameter in each.params):
            is_number = isinstance(parameter.default, int | float) or isinstance(
                parameter.type, click.types.IntParamType | click.types.FloatParamType
            )
            is_flag = isinstance(parameter, click.Option) and parameter.is_flag
            if is_number and not is_flag and not isinstance(parameter.default, bool):
                yield name, parameter.opts[0]


def test_every_option_that_takes_a_number_is_tried_here() -> None:
    assert set(numeric_options()) == REFUSED.keys()


@needs_torch
@pytest.mark.parametrize("option", REFUSED, ids=" ".join)
def test_an_option_refuses_what_is_no_number_for_it(
    option: tuple[str, str], tmp_path: Path
) -> None:
    """A command that ran the file would say so."""
    (tmp_path / "m.py").write_text(FAILS)
    command, values = REFUSED[option]
    for value in values:
        result = regraft(*command, f"{option[1]}={value}", cwd=tmp_path)
        assert result.returncode == 2 and not result.stdout, value
        assert option[1] in result.stderr and "m.py" not in result.stderr, value


@needs_torch
@pytest.mark.parametrize("goal", ["fastest", "smallest"])
def test_the_limits_of_a_choice_are_above_zero_and_end(goal: str, tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text(FAILS)
    option = "--memory-limit" if goal == "fastest" else "--time-limit"
    for value in LIMITS:
        command = ("bench", "m.py:build", "--select", goal, f"{option}={value}")
        result = regraft(*command, cwd=tmp_path)
        assert result.returncode == 2 and option in result.stderr, value
        assert "m.py" not in result.stderr, value
    result = regraft("bench", "m.py:build", f"{option}=", cwd=tmp_path)
    assert result.returncode == 2 and f"{option} goes with --select {goal}" in result.stderr


@pytest.mark.parametrize("key", ["jobs", "time-limit"])
def test_a_key_of_the_configuration_file_refuses_it_too(key: str, tmp_path: Path) -> None:
    file = tmp_path / "regraft.toml"
    values = ["-1", "nan", "-nan", "inf", "-inf", '"many"', "true", "1e300", "9" * 40, "[1]"]
    for value in values + (["0", "0.0"] if key == "time-limit" else ["1.5"]):
        file.write_text(f"{key} = {value}\n")
        with pytest.raises(ConfigurationError, match=f"`{key}` has to be a number of "):
            read(file)


@needs_torch
@pytest.mark.parametrize("value", [0, -1, float("nan"), float("inf"), 1e300, 10**400, "60", True])
def test_functions_refuse_a_time_limit_that_is_none(value: float) -> None:
    message = "time_limit has to be a number of seconds above 0"
    with pytest.raises(ValueError, match=message):
        api.verify("missing.py", b"", time_limit=value)
    from torch import nn

    with pytest.raises(ValueError, match=message):
        api.optimize(nn.ReLU(), time_limit=value, verify=False, lock=False)


@needs_torch
@pytest.mark.parametrize("rounds", [0, -1, float("nan"), float("inf"), 5])
def test_bench_refuses_too_few_rounds(rounds: int) -> None:
    from torch import nn

    with pytest.raises(ValueError, match=r"rounds is .*; an interval needs at least 6"):
        api.bench(nn.ReLU(), (), rounds=rounds)
