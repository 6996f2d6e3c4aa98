"""The original network as the standard of a check, with the recorder of its decisions, and the
result of a check."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from regraft.splitting.errors import Unsplittable, line_of_forward
from regraft.splitting.program.residual import BEYOND_LIMITS, Step
from regraft.splitting.sampling.bounded_results import bounded_results
from regraft.splitting.sampling.decision_recorder import Recorder, TooLong

MAX_ROUNDED = 10  # inputs whose results may differ by as much as rounding changes the original's


@dataclass
class CheckResult:
    """The inputs of a check, by number, and the sides that they took.

    equal: inputs with equal results. taken: numbers of the sides. at_threshold: inputs that the
    split network decides otherwise, because the values compared lie at a threshold. rounding:
    inputs whose results differ by no more than those of the original do where its weights are
    rounded differently.
    """

    equal: set[int] = field(default_factory=set)
    taken: set[int] = field(default_factory=set)
    at_threshold: list[str] = field(default_factory=list)
    rounding: list[str] = field(default_factory=list)

    def for_next_artefact(self) -> CheckResult:
        """Return the result with which the check of another artefact begins: the same sides (the
        set is shared), copies of `at_threshold` and `rounding`, and no equal inputs."""
        return CheckResult(
            taken=self.taken,
            at_threshold=list(self.at_threshold),
            rounding=list(self.rounding),
        )


@dataclass(frozen=True)
class Original:
    """The network that a split network is compared with.

    calls: the arguments of the example calls, by parameter. varied: how many of them, from the
    first one on, are perturbed for further inputs. recorder: runs `steps`, the residual program,
    and records its decisions.
    """

    model: torch.nn.Module
    calls: list[dict[str, Any]]
    varied: int
    recorder: Recorder
    steps: list[Step]

    def run(self, call: dict[str, Any]) -> Any:
        """Return the original's result, or the exception that it raises; raise TooLong where values
        ask for a result that is too large."""
        with torch.no_grad(), bounded_results():
            return attempt(lambda: self.model(**call))

    def trace(self, call: dict[str, Any]) -> Any:
        """Run the residual program, whose decisions are then in `recorder`; return its result, or
        the exception that it raises.

        Raises TooLong where a loop does not end, or values ask for a result that is too large.
        """
        with bounded_results():
            return attempt(lambda: self.recorder.record(self.steps, call))

    def look_for_thresholds(self, call: dict[str, Any]) -> None:
        """Run the residual program once more; the recorder notes decisions at their thresholds.
        Exceptions are ignored, but for TooLong and Unsplittable."""
        attempt(lambda: self.recorder.record(self.steps, call, near=True))

    def refuse(self, reason: str, place: tuple[str, int] | None = None) -> Unsplittable:
        """Return the error, for the caller to raise, that refuses the network, at a place in its
        source, by default at its forward."""
        path, line = place or (self.recorder.path, line_of_forward(self.model))
        return Unsplittable(path, line, reason)


def attempt(call: Callable[[], Any]) -> Any:
    """Return the result of the call, or the exception that it raises; TooLong and Unsplittable are
    raised on."""
    try:
        return call()
    except (TooLong, Unsplittable):
        raise
    except Exception as problem:  # noqa: BLE001  (whatever the network raises)
        return problem


def is_beyond_limits(outcome: Any) -> bool:
    """Return whether an outcome is the error of a region that got sizes beyond its limits."""
    return isinstance(outcome, Exception) and BEYOND_LIMITS in str(outcome)
