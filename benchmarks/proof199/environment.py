"""The environments that models run in: made under `.cache/` the first time, and when what they need
changes."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

HERE = Path(__file__).parent
STORE = HERE.parent.parent / ".cache" / "proof199"
TORCH = "torch==2.13.0"
# What models of a package need beside it to run on tiny inputs; nothing chooses another torch.
VISION = ("torchvision==0.28.0", "numpy==2.2.6", "pillow==12.0.0")
BESIDE = {
    "transformers": ("scipy==1.15.3", "timm==1.0.31", *VISION),
    "diffusers": ("transformers==5.23.0", "scipy==1.15.3", *VISION),
    "timm": VISION,
}
# The registry's build of torchvision is for CUDA: without it the library of its own operators
# cannot be loaded, and the import asks for two of their names. Detectors call one, which takes the
# best boxes that hardly overlap.
_OPERATORS = """import torch as _torch

for _name in ("nms", "qnms"):
    _torch.library.define(f"torchvision::{_name}", "(Tensor boxes, Tensor scores, float iou_threshold) -> Tensor")


@_torch.library.impl("torchvision::nms", "CPU")
def _nms(boxes, scores, iou_threshold):
    order = scores.argsort(descending=True, stable=True)
    left, top, right, bottom = boxes[order].to(_torch.promote_types(boxes.dtype, _torch.float32)).unbind(1)
    areas = (right - left) * (bottom - top)
    kept = _torch.ones(len(order), dtype=bool).numpy()
    for first in range(0, len(order), 64):  # rows that stay in the cache
        rows, rest = slice(first, first + 64), slice(first, None)
        wide = right[rows, None].minimum(right[rest]).sub_(left[rows, None].maximum(left[rest])).clamp_(min=0)
        high = bottom[rows, None].minimum(bottom[rest]).sub_(top[rows, None].maximum(top[rest])).clamp_(min=0)
        shared = wide.mul_(high)
        far = ~(shared / (areas[rows, None] + areas[rest] - shared) > iou_threshold).numpy()
        for place in range(len(far)):
            if kept[first + place]:
                kept[first + place + 1 :] &= far[place, place + 1 :]
    return order[_torch.from_numpy(kept)]


"""  # noqa: E501
_THERE = "\nextension._has_ops = lambda: True\n"  # which its functions ask first
_CODE = "import sysconfig; print(sysconfig.get_path('purelib'))"


def python(requirement: str) -> str:
    """The interpreter of a package's environment. Raises CalledProcessError where something cannot
    be installed."""
    folder = STORE / f"environment-{requirement}"
    found, installed = folder / "bin" / "python", folder / "installed.txt"
    needs = (requirement, *BESIDE.get(requirement.partition("==")[0], ()))
    wanted = "\n".join((TORCH, *needs, _OPERATORS, _THERE))
    if not (installed.is_file() and installed.read_text() == wanted):
        print(f"making {folder} ({', '.join((TORCH, *needs))})", file=sys.stderr)
        venv.create(folder, with_pip=True, clear=True)
        pip = [str(found), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        # first and pinned, so that nothing else chooses a build of it
        subprocess.run([*pip, TORCH], check=True)
        subprocess.run([*pip, *needs], check=True)
        _name_operators(packages(str(found)) / "torchvision" / "__init__.py")
        installed.write_text(wanted)
    return str(found)


def _name_operators(vision: Path) -> None:
    if vision.exists():
        vision.write_text(
            _OPERATORS + vision.read_text(encoding="utf-8") + _THERE, encoding="utf-8"
        )


def packages(interpreter: str) -> Path:
    """The folder that the environment's packages are in."""
    done = subprocess.run([interpreter, "-c", _CODE], stdout=subprocess.PIPE, text=True, check=True)
    return Path(done.stdout.strip())
