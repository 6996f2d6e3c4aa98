"""Silence of what torch, its exporters and the networks themselves print while regions are
compiled."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """In the `with` block drop log records and warnings, and what is printed on stdout: a region
    that an exporter refuses is tried otherwise, or reported."""
    disabled_level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled_level)
