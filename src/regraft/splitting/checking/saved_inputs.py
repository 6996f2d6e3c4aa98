"""Inputs on which a split network differs from the original, kept so that they can be run again."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch

from regraft.source.cache_key import cache_directory

INPUTS, NETWORK = "inputs.pt", "network"  # the names of what is saved
MAX_SAVED = 5  # differences in the cache; the oldest ones go


def save_inputs(call: dict[str, Any], directory: Path) -> Path | None:
    """Save the arguments of a call and the split network of `directory` in the user's cache
    directory, and return the new folder; None where there is no cache or it cannot be written."""
    root = cache_directory()
    if root is None:
        return None
    try:
        (root / "differences").mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="split-", dir=root / "differences"))
        torch.save(call, folder / INPUTS)
        shutil.copytree(directory, folder / NETWORK, ignore=shutil.ignore_patterns("__pycache__"))
        folders = sorted((root / "differences").iterdir(), key=lambda path: path.stat().st_mtime)
        for oldest in folders[:-MAX_SAVED]:
            shutil.rmtree(oldest, ignore_errors=True)
    except OSError:
        return None
    return folder


def replay_advice(call: dict[str, Any], directory: Path) -> str:
    """Save a call and the split network, and return the words for an error's message on how to run
    them again; "" where they cannot be saved."""
    folder = save_inputs(call, directory)
    return f"; run these inputs again: regraft split TARGET --replay {folder}" if folder else ""
