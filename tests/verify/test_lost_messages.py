"""Test that messages to people which a change drops are named."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from verdicts import verdict_on  # noqa: E402

from regraft.verification.lost_messages import lost_messages  # noqa: E402

pytestmark = pytest.mark.usefixtures("here")

WARNING = b"""\
import logging
import warnings

logger = logging.getLogger(__name__)


def scale(x):
    if x.dim() > 2:
        warnings.warn("many dimensions")
    logger.warning("scaled")
    return x * 2
"""


def test_dropped_messages_are_named() -> None:
    changed = WARNING.replace(b'logger.warning("scaled")', b"pass")
    changed = changed.replace(b"many dimensions", b"dimensions")
    assert lost_messages(WARNING, changed, "scale") == [
        "a message of line 9: warnings.warn('many dimensions')",
        "a message of line 10: logger.warning('scaled')",
    ]
    assert lost_messages(WARNING, WARNING, "scale") == []


def test_a_message_in_another_function_is_not_lost() -> None:
    moved = WARNING.replace(
        b'    logger.warning("scaled")\n    return x * 2',
        b'    log()\n    return x * 2\n\n\ndef log():\n    logger.warning("scaled")',
    )
    assert lost_messages(WARNING, moved, "scale") == []


@pytest.mark.slow
def test_a_proof_names_a_dropped_warning(tmp_path: Path) -> None:
    text = WARNING.decode().replace("import logging", "import logging\n\nimport torch")
    verdict = verdict_on(tmp_path, text, '    logger.warning("scaled")\n', "")
    assert verdict.status == "proved"
    assert verdict.evidence["losses"] == ["a message of line 12: logger.warning('scaled')"]
