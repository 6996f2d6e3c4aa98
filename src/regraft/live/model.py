"""`regraft.optimize(model)`: rewrite the methods of a live model, and undo it."""

from __future__ import annotations

import ast
import sys
import types
import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regraft.fix import Verify, base, definition, proved_fix
from regraft.live.classes import (
    Name,
    Rewritten,
    changed,
    functions_of,
    is_parametrized,
    reaching,
    rebased,
    restored,
    subclass,
)
from regraft.rules import load_rules
from regraft.rules.lock import locked_rules, nearest, notes, read
from regraft.scanning import (
    CompiledRule,
    FileReport,
    RuleDefect,
    check_file,
    compile_rules,
    rewrite_file,
    withhold_contract_rules,
)


class NothingOptimized(UserWarning):
    """No rule changed anything in a model; the message says why."""


class OtherConditions(UserWarning):
    """A lock file was measured with other versions or on another device."""


@dataclass(frozen=True, slots=True)
class Change:
    """A method that runs in a rewritten form: where it is, by which rules, in how many modules.

    The rules are those that rewrote it or a function that it calls.
    """

    file: str
    method: str
    rules: tuple[str, ...]
    modules: int


@dataclass(frozen=True, slots=True)
class Left:
    """A place that stays as it is, and why."""

    file: str
    place: str
    reason: str


@dataclass(slots=True)
class Optimization:
    """What `optimize` did to a model; as a context manager it ends with `restore`.

    lock      the lock file that chose the rules
    found     the rules that have something to rewrite in the model's files, each by itself
    unproved  the definitions, by file and name, that verification left out
    """

    model: Any
    changes: list[Change] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    lock: Path | None = None
    found: set[str] = field(default_factory=set)
    unproved: set[Name] = field(default_factory=set)

    @property
    def rules(self) -> tuple[str, ...]:
        """The rules that changed something, in order of their ids."""
        return tuple(sorted({rule for one in self.changes for rule in one.rules}))

    def __enter__(self) -> Optimization:
        return self

    def __exit__(self, *problem: object) -> None:
        restore(self.model)

    def __str__(self) -> str:
        lines = [f"{type(self.model).__name__}: {len(self.changes)} methods rewritten, {len(self.left)} places left"]
        lines += [f"  rules from {self.lock}"] if self.lock else []
        lines += [
            f"  {Path(one.file).name} {one.method}: {', '.join(one.rules)} ({one.modules} modules)"
            for one in self.changes
        ]
        lines += [f"  left {Path(one.file).name} {one.place}: {one.reason}" for one in self.left]
        return "\n".join(lines)


def optimize(
    model: Any, *, packs: Sequence[str] = (), select: Sequence[str] = (), ignore: Sequence[str] = (),
    lock: str | Path | bool | None = None, verify: bool = True, unsafe: bool = False, time_limit: float = 300.0,
) -> Optimization:  # fmt: skip
    """Rewrite the methods of a model's classes by the rules, in memory, for this model only.

    The modules stay the same objects with the same parameters, buffers and hooks; their files are not touched. With
    `verify` a method is only rewritten if running its whole file in both versions, in a child process, proves it.
    `packs`, `select` and `ignore` choose rules as on the command line, `lock` names a file that `regraft bench
    --select` wrote. Without any of them these are the rules of `regraft.lock.toml` in the working directory or its
    project, if there is one (False: never), else those that need nothing but PyTorch. `unsafe` adds rules that change
    what callers see.

    A copy of the model (`copy.copy`, `copy.deepcopy`) is rewritten as the model is. A pickle of it (`pickle.dumps`,
    `torch.save(model)`) holds the original classes, so it loads where Regraft is not installed; loading it warns that
    nothing of it is rewritten: call `optimize` on the loaded model again. A `state_dict` is that of the original.

    Raises ValueError for rules that do not exist or do not load and for a lock that does not fit them, VerifyError
    where nothing can be verified (no PyTorch for the child process). Warns with NothingOptimized if nothing was
    changed, and with OtherConditions if a lock was measured under others.
    """
    chosen = [*packs, *select, *ignore]
    if chosen and lock not in (None, False):
        raise ValueError("rules are chosen by a lock file or by packs, select and ignore, not by both")
    path = _lock_file(lock, bool(chosen))
    rules = _rules([*packs, *select], ignore, path, model)
    allowed = rules if unsafe else withhold_contract_rules(rules, "unsafe=True")
    result = rewrite(model, allowed, verify, time_limit=time_limit)
    result.lock = path
    if path is not None:
        result.left += [Left(str(path), rule.rule.id, rule.withheld) for rule in allowed if rule.withheld]
    if not result.changes:
        reasons = "; ".join(dict.fromkeys(f"{one.place}: {one.reason}" for one in result.left[:3]))
        none = f"{path} holds no rule" if path is not None and not rules else "no rule matches its source"
        message = f"nothing in {type(model).__name__} was rewritten: {reasons or none}"
        warnings.warn(message, NothingOptimized, stacklevel=2)
    return result


def rewrite(
    model: Any, rules: Sequence[CompiledRule], verify: bool, *, time_limit: float = 300.0,
    without: Collection[Name] = (),
) -> Optimization:  # fmt: skip
    """Rewrite a model's methods by these rules, leaving out the definitions `without`, by file and name."""
    restore(model)
    result = Optimization(model)
    files = [_File(module, path, classes) for path, (module, classes) in _files(model).items()]
    for one in files:
        one.rewrite(rules, verify, time_limit, result, without)
    _install(model, [one for one in files if one.rewritten is not None], result)
    return result


def restore(model: Any) -> None:
    """Give every module of the model its original class back."""
    for module in model.modules():
        cls = restored(type(module))
        if cls is not type(module):
            module.__class__ = cls


def _lock_file(lock: str | Path | bool | None, chosen: bool) -> Path | None:
    if lock is False or (lock is None and chosen):
        return None
    found = nearest(Path.cwd()) if lock is None or lock is True else Path(lock)
    if found is None and lock is True:
        raise ValueError("there is no regraft.lock.toml in the working directory or beside its pyproject.toml")
    return found


def _rules(select: Sequence[str], ignore: Sequence[str], path: Path | None, model: Any) -> tuple[CompiledRule, ...]:
    if path is None:
        rules, problems = load_rules(select, ignore)
    else:
        lock = read(path)
        rules, problems = locked_rules(path, lock)
        device = next((one.device.type for one in model.parameters()), "")
        for note in notes(lock, torch.__version__, device):
            warnings.warn(f"{path}: {note}", OtherConditions, stacklevel=3)
    compiled, more = compile_rules(rules)
    for problem in (*problems, *more):
        raise ValueError(f"{problem.path}:{problem.line}: {problem.message}")
    return tuple(one for one in compiled if not one.decorates)  # a model that exists is not decorated any more


def _files(model: Any) -> dict[str, tuple[types.ModuleType, set[str]]]:
    """Source files of the model's classes and their bases, PyTorch's own left out, and the classes' names."""
    found: dict[str, tuple[types.ModuleType, set[str]]] = {}
    classes = dict.fromkeys(cls for one in model.modules() for cls in type(one).__mro__)
    for cls in (one for one in classes if issubclass(one, nn.Module)):
        module = sys.modules.get(cls.__module__)
        file = getattr(module, "__file__", None)
        outside = cls.__module__.partition(".")[0] not in ("torch", "regraft", "builtins")
        if outside and module is not None and file is not None and file.endswith(".py"):
            found.setdefault(file, (module, set()))[1].add(cls.__name__)
    return found


class _File:
    """One source file of the model, and what becomes of it."""

    def __init__(self, module: types.ModuleType, path: str, classes: set[str]) -> None:
        self.module, self.path, self.classes = module, path, classes
        self.rewritten: Rewritten | None = None
        self.rules: dict[Name, tuple[str, ...]] = {}

    def rewrite(
        self, rules: Sequence[CompiledRule], verify: bool, time_limit: float, result: Optimization,
        without: Collection[Name],
    ) -> None:  # fmt: skip
        left = result.left
        report = check_file(Path(self.path), rules)
        if report.source is None:
            left += [Left(self.path, "", error.message) for error in report.errors]
            return
        result.found |= {one.rule.id for one in report.findings if one.fixable}
        left += [
            Left(self.path, _place(one.cls, one.function), f"{one.rule.id}: {one.reason}")
            for one in report.findings if not one.fixable and one.cls in self.classes
        ]  # fmt: skip
        try:
            prove = _verifier(self.path, time_limit) if verify else None
            data = self._rewritten_text(report, rules, prove, result, without)
        except RuleDefect as defect:
            left.append(Left(self.path, "", defect.error.message))
            return
        before, after = ast.parse(report.source.text), ast.parse(data)
        names = changed(before, after)
        if names is None:
            left.append(Left(self.path, "", "more than functions would have to change"))
        elif names:
            for function in [name for owner, name in names if not owner]:
                callers = reaching(after, {function})
                names |= callers
                self._count(callers, self.rules.get(("", function), ()))
            known = {ast.dump(one) for one in before.body}
            imports = [one for one in after.body if isinstance(one, ast.Import | ast.ImportFrom)]
            added = [one for one in imports if ast.dump(one) not in known]
            methods = {one for one in self._live(report, names, left) if not one[0] or one[0] in self.classes}
            try:
                self.rewritten = Rewritten(self.module, self.path, data, added, methods)
            except Exception as problem:  # noqa: BLE001 - decorators and defaults of the model's file run anew
                left.append(Left(self.path, "", f"cannot be defined anew: {type(problem).__name__}: {problem}"))

    def _rewritten_text(
        self, report: FileReport, rules: Sequence[CompiledRule], verify: Verify | None, result: Optimization,
        without: Collection[Name],
    ) -> bytes:  # fmt: skip
        if verify is None:
            wanted = {name for file, name in without if file == self.path}
            data, applied = rewrite_file(report, rules, wanted=lambda one: definition(one) not in wanted)
        else:
            fix = proved_fix(report, rules, verify)
            data, applied = fix.data, fix.applied
            for verdict in fix.left_out:
                name = base(verdict.definition)
                result.left.append(Left(self.path, name, f"{verdict.status}: {verdict.reason}"))
                result.unproved.add((self.path, name))
        for one in applied:
            self._count([(one.cls or "", one.function.partition(".")[0])], (one.rule.id,))
        return data

    def _count(self, names: Collection[Name], rules: Sequence[str]) -> None:
        for name in names:
            self.rules[name] = tuple(dict.fromkeys((*self.rules.get(name, ()), *rules)))

    def _live(self, report: FileReport, names: set[Name], left: list[Left]) -> Iterator[Name]:
        """Those of the functions that run as their file says, and not as something else has made them since."""
        assert report.source is not None
        codes = dict(_codes(compile(report.source.text, self.path, "exec", dont_inherit=True), ""))
        for owner, name in sorted(names):
            holder = vars(self.module).get(owner) if owner else self.module
            found = vars(holder).get(name) if holder is not None else None
            expected = codes.get(_place(owner, name))
            if any(one.__code__ == expected for one in functions_of(found)):
                yield owner, name
            else:
                left.append(Left(self.path, _place(owner, name), "something has replaced it since its file was read"))


def _verifier(path: str, time_limit: float) -> Verify:
    from regraft.source.cache_key import cache_directory
    from regraft.verify.types import OWN, Terms
    from regraft.verify.verdict_cache import verified

    terms = Terms(keep=OWN)
    return lambda data: verified(Path(path), data, time_limit=time_limit, root=cache_directory(), terms=terms)


def _place(cls: str | None, function: str) -> str:
    return f"{cls}.{function}" if cls else function


def _codes(code: types.CodeType, prefix: str) -> Iterator[tuple[str, types.CodeType]]:
    """Code objects of functions and methods by their dotted names."""
    for one in code.co_consts:
        if isinstance(one, types.CodeType):
            yield prefix + one.co_name, one
            if not prefix:
                yield from _codes(one, f"{one.co_name}.")


def _install(model: Any, files: Sequence[_File], result: Optimization) -> None:
    """Give the model's modules classes with the rewritten methods, where those are what the modules run."""
    made: dict[type, dict[str, tuple[_File, Name]]] = {}
    classes: dict[tuple[type, frozenset[str]], type] = {}
    counts: dict[tuple[str, Name], int] = {}
    for module in model.modules():
        cls = type(module)
        if cls not in made:
            made[cls] = dict(_methods(cls, files, result.left))
        methods = {name: one for name, one in made[cls].items() if name not in vars(module)}
        for name in made[cls].keys() - methods.keys():
            result.left.append(
                Left(made[cls][name][0].path, f"{cls.__name__}.{name}", "this module has one of its own")
            )
        if not methods:
            continue
        parametrized = is_parametrized(cls)  # PyTorch takes this class off by its base, so it stays the outermost
        rewritten_cls = cls.__bases__[0] if parametrized else cls
        key = (rewritten_cls, frozenset(methods))
        if key not in classes:
            classes[key] = subclass(rewritten_cls, {name: _made(*one) for name, one in methods.items()})
        try:
            module.__class__ = rebased(cls, (classes[key],)) if parametrized else classes[key]
        except TypeError as problem:
            result.left.append(Left("", cls.__name__, str(problem)))
            continue
        for file, method in methods.values():
            counts[file.path, method] = counts.get((file.path, method), 0) + 1
    by_path = {one.path: one for one in files}
    for (path, method), number in counts.items():
        result.changes.append(Change(path, _place(*method), by_path[path].rules.get(method, ()), number))


def _made(file: _File, name: Name) -> Any:
    assert file.rewritten is not None
    return file.rewritten.methods[name[0]][name[1]]


def _methods(cls: type, files: Sequence[_File], left: list[Left]) -> Iterator[tuple[str, tuple[_File, Name]]]:
    """The rewritten methods that an instance of a class runs."""
    hidden: set[str] = set()
    for one in cls.__mro__:
        for file in files:
            assert file.rewritten is not None
            if vars(file.module).get(one.__name__) is not one:
                continue
            for name in file.rewritten.methods.get(one.__name__, {}):
                if name not in hidden:
                    yield name, (file, (one.__name__, name))
                else:
                    place = f"{one.__name__}.{name}"
                    left.append(Left(file.path, place, f"{cls.__name__} has another one, and may call it by super()"))
        hidden |= vars(one).keys()
