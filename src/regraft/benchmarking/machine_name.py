"""The name of the machine that a benchmark runs on."""

from __future__ import annotations

import platform
import re
from pathlib import Path

import torch


def machine(device: torch.device) -> str:
    """Return the name of the CUDA device, or of the processor."""
    if device.type == "cuda":
        return str(torch.cuda.get_device_name(device))
    try:
        model_name = re.search(
            r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text("utf-8"), re.MULTILINE
        )
    except OSError:  # not Linux
        model_name = None
    return model_name[1].strip() if model_name else platform.processor() or platform.machine()
