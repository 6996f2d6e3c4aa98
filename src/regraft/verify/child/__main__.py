"""Entry of the child process: `python -m regraft.verify.child FOLDER [BYTES]` answers the request
in FOLDER."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from regraft.verify.descendants import adopt_orphans, end_descendants
from regraft.verify.types import INTERNAL


def main() -> None:
    """Limit this process and answer the request; without torch the result is the fatal error
    "torch"."""
    adopt_orphans()
    folder = Path(sys.argv[1])
    if len(sys.argv) > 2:
        _limit_memory(int(sys.argv[2]))
    request: dict[str, Any] = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    if importlib.util.find_spec("torch") is None:
        (folder / "result.json").write_text(
            json.dumps({"fatal": {"what": "torch"}}), encoding="utf-8"
        )
    else:
        from regraft.verify.child.run import run

        try:
            run(folder, request)
        except Exception:  # noqa: BLE001 - errors of models are caught where models run; this is a failure of ours
            traceback.print_exc()
            sys.stderr.flush()
            end_descendants(os.getpid())
            os._exit(INTERNAL)
    sys.stdout.flush()
    sys.stderr.flush()
    end_descendants(os.getpid())
    os._exit(0)  # threads and exit handlers of model code may not hold us up


def _limit_memory(limit: int) -> None:
    """Limit the address space of this process, in bytes, where the system can."""
    try:
        import resource
    except ImportError:  # no such limits on this platform
        return
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main()
