"""The environment of the processes that run code under test: the variables that Python, PyTorch and
model code need, and no secrets."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType

# one thread, no downloads by the libraries of Hugging Face, fixed hashing
_OVERRIDES: Mapping[str, str] = MappingProxyType(
    {
        "PYTHONHASHSEED": "0",
        "PYTHONDONTWRITEBYTECODE": "1",
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
        "HF_DATASETS_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TRANSFORMERS_VERBOSITY": "error",
        "TOKENIZERS_PARALLELISM": "false",
        "REGRAFT_KERNELS": "always",  # also for inputs so small that kernels do not pay
    }
)
_ALLOWED = re.compile(
    "|".join(
        (
            "PATH|HOME|USER|LOGNAME|SHELL|PWD|TERM|TZ|TMPDIR|TEMP|TMP|LANG|LANGUAGE|LC_.*|XDG_.*",
            "PYTHON.*|VIRTUAL_ENV|CONDA.*|PYENV_.*|CC|CXX|LIBRARY_PATH|CPATH|LD_.*|DYLD_.*",
            "OMP_.*|MKL_.*|KMP_.*|GOMP_.*|BLIS_.*|OPENBLAS_.*|NUMEXPR_.*|VECLIB_.*|NPY_.*|MPLBACKEND",
            "CUDA.*|CUDNN.*|CUBLAS.*|NCCL_.*|NVIDIA_.*|NVTE_.*|HIP_.*|HSA_.*|ROCM_.*|ROCR_.*",
            "TORCH.*|PYTORCH.*|TRITON_.*|ATEN_.*|KINETO_.*|XFORMERS_.*|FLASH_ATTENTION_.*",
            "HF_.*|HUGGINGFACE_HUB_CACHE|TRANSFORMERS_.*|DIFFUSERS_.*|TOKENIZERS_.*|REGRAFT_.*",
            # of Windows
            "SYSTEMROOT|SYSTEMDRIVE|WINDIR|COMSPEC|PATHEXT|USERPROFILE|(LOCAL)?APPDATA|PROGRAM.*",
            "NUMBER_OF_PROCESSORS|PROCESSOR_.*|OS",
        )
    )
)
_SECRET_WORDS = frozenset(
    [
        "TOKEN",
        "TOKENS",
        "KEY",
        "KEYS",
        "APIKEY",
        "SECRET",
        "SECRETS",
        "PASSWORD",
        "PASSWD",
        "PASS",
        "PASSPHRASE",
        "CREDENTIAL",
        "CREDENTIALS",
        "AUTH",
        "COOKIE",
    ]
)


def child_environment(environment: Mapping[str, str], passed: Collection[str]) -> dict[str, str]:
    """Return the environment of a child: the variables of `environment` that are allowed or have a
    name in `passed`, and Regraft's own settings over them."""
    allowed = {
        name: value
        for name, value in environment.items()
        if name in passed or _is_allowed(name.upper())
    }
    return {**allowed, **_OVERRIDES}


def is_kept_back(name: str, environment: Mapping[str, str], passed: Collection[str]) -> bool:
    """Return whether a variable is in `environment`, and `child_environment` leaves it out."""
    return name in environment and name not in child_environment(environment, passed)


def _is_allowed(name: str) -> bool:
    """Return whether a child gets a variable by default: its name, in capitals, is one that Python,
    PyTorch and models read, and has no word for a secret (TOKEN, KEY)."""
    return bool(_ALLOWED.fullmatch(name)) and _SECRET_WORDS.isdisjoint(name.split("_"))
