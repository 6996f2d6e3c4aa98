"""The main job on real modeling files: find, show the diff, prove it by running both versions, and
measure what it gains here."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from pathlib import Path

FILES = ("activations.py", "models/bert/modeling_bert.py")
LENGTH = 1024  # tokens


def main() -> int:
    spec = importlib.util.find_spec("transformers")
    if spec is None or spec.origin is None:
        print("transformers is not installed: run `make demo`", file=sys.stderr)
        return 2
    package = Path(spec.origin).parent
    failed = False
    for name in FILES:
        file = f"{package.name}/{name}"
        heading(f"regraft check transformers/{name}")
        run(package.parent, "check", "--target", "cpu", file)
        heading(f"regraft check --diff transformers/{name}")
        run(package.parent, "check", "--target", "cpu", "--diff", file)
        heading(f"regraft verify transformers/{name}   (both versions run; this takes a while)")
        failed |= run(package.parent, "verify", "--target", "cpu", file) != 0
    subject = f"{Path(__file__)}:bert"
    heading(
        f"regraft bench scripts/demo.py:bert   (one layer of BERT, {LENGTH:,} tokens, one core)"
    )
    measure = ("bench", subject, "--packs", "torch/attention", "--rounds", "6", "--no-verify")
    failed |= run(Path(), *measure) != 0
    return int(failed)


def bert() -> tuple[object, tuple[object, ...]]:
    """Return one layer of BERT at its usual width, and its tokens."""
    torch, transformers = (importlib.import_module(name) for name in ("torch", "transformers"))
    config = transformers.BertConfig(
        num_hidden_layers=1, max_position_embeddings=LENGTH, attn_implementation="eager"
    )
    tokens = torch.randint(0, config.vocab_size, (1, LENGTH))
    return transformers.BertModel(config).eval(), (tokens,)


def heading(text: str) -> None:
    print(f"\n\033[1m$ {text}\033[0m" if sys.stdout.isatty() else f"\n$ {text}", flush=True)


def run(directory: Path, *arguments: str) -> int:
    return subprocess.run(
        [sys.executable, "-m", "regraft", *arguments], cwd=directory, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
