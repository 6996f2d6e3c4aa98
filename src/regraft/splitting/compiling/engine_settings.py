"""How the engine runs the sub-networks: its threads and, in ONNX Runtime, its execution
providers."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import onnxruntime

from regraft.source.similar_names import suggest

CPU_PROVIDER = "CPUExecutionProvider"


@dataclass(frozen=True)
class EngineSettings:
    """The threads of one operation, and the execution providers of ONNX Runtime in the order in
    which they are asked."""

    threads: int = 1
    providers: tuple[str, ...] = (CPU_PROVIDER,)

    def chosen(self, names: Collection[str]) -> dict[str, Any]:
        """Return the settings of these names by name, as JSON values."""
        fields = dataclasses.asdict(self)
        return {name: fields[name] for name in fields if name in names}


def engine_settings(
    threads: int | None = None, providers: Sequence[str] | None = None
) -> EngineSettings:
    """Return the settings; None stands for one thread, and for the CPU.

    Raises ValueError for a number of threads that is no whole number from 1 on, and for a provider
    that ONNX Runtime does not have here.
    """
    stated = given_settings(threads, providers)
    if "threads" in stated:
        check_threads(stated["threads"])
    if "providers" in stated:
        check_providers(stated["providers"])
        stated["providers"] = tuple(stated["providers"])
    return EngineSettings(**stated)


def given_settings(threads: int | None, providers: Sequence[str] | None) -> dict[str, Any]:
    """Return those of the settings that are not None, by name."""
    settings = {"threads": threads, "providers": providers}
    return {name: value for name, value in settings.items() if value is not None}


def check_threads(threads: object) -> None:
    """Raise ValueError unless the number of threads is a whole number from 1 on."""
    if type(threads) is not int or threads < 1:
        raise ValueError(f"threads is {threads!r}; give a whole number from 1 on")


def check_providers(providers: object) -> None:
    """Raise ValueError unless these are names, one at least, of execution providers that the
    installed ONNX Runtime has, each of them once."""
    if isinstance(providers, str) or not isinstance(providers, Sequence) or not providers:
        raise ValueError(
            f"providers is {providers!r}; give a list of names, such as {CPU_PROVIDER}"
        )
    available = onnxruntime.get_available_providers()
    for provider in providers:
        if provider not in available:
            raise ValueError(
                f"{describe_missing(provider)} This installation has {', '.join(available)}."
            )
    if len(set(providers)) < len(providers):
        raise ValueError(f"providers names one twice: {', '.join(providers)}")


def describe_missing(provider: object) -> str:
    """Return why ONNX Runtime does not have a provider: another package of it does, or nobody knows
    the name."""
    names = onnxruntime.get_all_providers()
    if provider in names:
        return (
            f"ONNX Runtime was installed without the provider {provider}, which another package of"
            " it has."
        )
    return f"ONNX Runtime has no provider {provider!r}{suggest(str(provider), names) or '.'}"
