"""Build a class with a small configuration, repaired until the original is built and accepts some inputs."""

from __future__ import annotations

import copy
import itertools
import linecache
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import torch

from regraft.verify.child.drivers import fit, inputs, repair, tiny, vary
from regraft.verify.child.drivers.slots import Spec
from regraft.verify.child.drivers.where import statements
from regraft.verify.child.replay import bare
from regraft.verify.child.session import Session, in_mode, seeded
from regraft.verify.child.tree import at_home

REPAIR_SECONDS = 12.0
LARGEST = 26_000_000
EAGER = "eager"
_SET = re.compile(r"\s*self\.(\w+) = ")
BUILDING, TOO_LARGE, RUNNING, DONE = 1, 2, 3, 4  # stages of a trial; 0 is the configuration itself


@dataclass(frozen=True, slots=True)
class Trial:
    """A configuration, how far it led (too large, building, running; then a measure), and the error at its end.

    `searched` says that a model which takes no inputs was searched for them.
    """

    values: Mapping[str, Any]
    attention: str
    progress: tuple[int, int]
    error: BaseException | None
    config: Any = None
    model: Any = None
    found: inputs.Found | None = None
    searched: bool = False

    @property
    def furthest(self) -> repair.Attempt | None:
        """The run of a model that takes no inputs which came furthest."""
        return self.error.furthest if isinstance(self.error, inputs.NoInputs) else None


def attempt(
    what: str, cls: str, config_class: Any, values: Mapping[str, Any], session: Session, *, attention: str = EAGER,
    seconds: float = 0.0, first: Spec | None = None,
) -> Trial:  # fmt: skip
    """Build the original from a configuration and look for inputs; what fails on the way is the trial's error."""
    if what in session.ledger.avoided:
        return Trial(values, attention, (0, 0), RuntimeError(f"{what}: left out, it ended the process before"))
    stage, counter = 0, repair.Counter()
    config = model = None
    with session.ledger.step("original", "", what):
        try:
            with counter:
                config = make_config(config_class, values, attention)
                stage = BUILDING
                refuse_large(builder(cls, config), session.original)
                model = in_mode(seeded(0, builder(cls, config), session.original), False)
            found = inputs.find(model, seconds=seconds, first=first)
        except inputs.NoInputs as error:
            progress = (RUNNING, error.furthest.progress)
            return Trial(values, attention, progress, bare(error), config, model, searched=seconds > 0)
        except _TooLarge as error:
            return Trial(values, attention, (TOO_LARGE, -error.count), bare(error), config)
        except Exception as error:  # noqa: BLE001 - a shrunk configuration may not fit; the reason to try another
            return Trial(values, attention, (stage, counter.count), bare(error), config)
        return Trial(values, attention, (DONE, 0), None, config, model, found)


def quickly(cls: str, config_class: Any, original: Mapping[str, Any], session: Session) -> Trial:
    """Try the configuration shrunk by each scale; return the first trial that works, or the one that came furthest."""
    best = None
    for scale in tiny.SCALES:
        trial = attempt(f"bring up {cls}", cls, config_class, tiny.shrink(original, scale), session)
        if trial.error is None:
            return trial
        worth = _much_further if scale.image == tiny.WIDEST else _further
        best = trial if best is None or worth(trial, best) else best
    assert best is not None
    return best


def _further(trial: Trial, best: Trial) -> bool:
    """Whether a trial came further; one that is too large leads nowhere while smaller ones can be repaired."""
    return trial.progress > best.progress and trial.progress[0] != TOO_LARGE


def _much_further(trial: Trial, best: Trial) -> bool:
    """Whether inputs of full size are worth it: a few operations more before the same error are not."""
    (stage, count), (best_stage, best_count) = trial.progress, best.progress
    return _further(trial, best) and (stage > best_stage or count > best_count + best_count // 5)


def repaired(
    cls: str, config_class: Any, original: Mapping[str, Any], best: Trial, session: Session, choices: vary.Choices
) -> Trial:
    """Repair a configuration, or the inputs for it, as long as each repair leads further."""
    deadline = session.ledger.share(REPAIR_SECONDS)
    while best.error is not None and time.process_time() < deadline and not session.ledger.late():
        last = best.furthest.error if best.furthest is not None else best.error
        assert last is not None
        line = raising(last, session.original, config_class)
        repairs = fit.repairs(original, best.values, brief(last, 2000), line, choices)
        better = next(_better(cls, config_class, best, repairs, session, deadline), None)
        if better is None:
            return best
        best = better
    return best


def _better(
    cls: str, config_class: Any, best: Trial, repairs: Iterator[dict[str, Any]], session: Session, deadline: float
) -> Iterator[Trial]:
    """Yield trials that lead further than the best so far: with inputs searched for, then with other values."""
    search = [(best.values, repair.SECONDS)] if best.progress[0] == RUNNING and not best.searched else []
    others = ((values, 0.0) for values in repairs)
    first = best.furthest.spec if best.furthest is not None else None
    # other inputs do not help where the error says so, or where layers do not fit each other
    blamed = "config" in str(best.error) or (best.furthest is not None and repair.unlike_layers(best.furthest))
    for values, seconds in itertools.chain(others, search) if blamed else itertools.chain(search, others):
        if time.process_time() > deadline:
            return
        trial = attempt(f"repair {cls}", cls, config_class, values, session, seconds=seconds, first=first)
        if trial.progress > best.progress:
            yield trial


def raising(error: BaseException, module: ModuleType, config_class: Any = None) -> str:
    """The innermost statement of a file that an error came through, "" where it came through none of it.

    With it come the statements that set the attributes it reads, and the names that a configuration has for others.
    """
    text = next((text for filename, text in statements(error, conditions=True) if filename == module.__file__), "")
    read = set(re.findall(r"self\.(\w+)", text))
    lines = linecache.getlines(module.__file__ or "")
    text = "".join([text, *(one for one in lines if (found := _SET.match(one)) and found[1] in read)])
    kinds = (config_class, *getattr(config_class, "sub_configs", {}).values())
    aliases = [pair for kind in kinds for pair in getattr(kind, "attribute_map", {}).items()]
    return " ".join([text, *(name for alias, name in aliases if re.search(rf"\b{alias}\b", text))])


class _TooLarge(ValueError):
    """The model would not be small."""

    def __init__(self, count: int) -> None:
        super().__init__(f"it still has {count:,} parameters when its configuration is shrunk")
        self.count = count


def brief(error: BaseException | None, length: int = 200) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:length]}"


def refuse_large(build: Callable[[ModuleType], Any], module: ModuleType) -> None:
    """Raise _TooLarge for a model that would not be small; it is counted without being allocated."""
    try:
        with torch.device("meta"):
            model = build(module)
    except Exception:  # noqa: BLE001 - some constructors compute with values; those are built for real
        return
    count = sum(parameter.numel() for parameter in model.parameters())
    if count > LARGEST:
        raise _TooLarge(count)


def builder(cls: str, config: Any) -> Callable[[ModuleType], Any]:
    return lambda module: getattr(module, cls)(at_home(copy.deepcopy(config), module))


def make_config(config_class: Any, values: Mapping[str, Any], attention: str) -> Any:
    config = config_class.from_dict(copy.deepcopy(dict(values)))
    config._attn_implementation = attention
    config._experts_implementation = EAGER  # so that the code of the file runs
    return config
