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

from regraft.fix import Verify, base_name, definition, proved_fix
from regraft.live.classes import (
    Name,
    RewrittenMethods,
    changed_definitions,
    definitions_reaching,
    functions_of,
    is_parametrized,
    rebase_class,
    restore_class,
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
    """The warning that no rule changed anything in a model; the message says why."""


class OtherConditions(UserWarning):
    """The warning that a lock file was measured with other versions or on another device."""


@dataclass(frozen=True, slots=True)
class Change:
    """A method that runs in a rewritten form.

    file     the source file of the method
    method   its dotted name, or that of a function
    rules    the rules that rewrote the method or a function that it calls
    modules  the number of modules that run it
    """

    file: str
    method: str
    rules: tuple[str, ...]
    modules: int


@dataclass(frozen=True, slots=True)
class Left:
    """A place that stays as it is, and the reason; the file and the place are "" where there is
    none."""

    file: str
    place: str
    reason: str


@dataclass(slots=True)
class Optimization:
    """The result of `optimize` on a model; as a context manager it ends with `restore`.

    changes   the methods that run in a rewritten form left      the places that stay as they are
    lock      the lock file that chose the rules; None without one found     the ids of the rules
    that have something to rewrite in the model's files, each by itself unproved  the definitions,
    by file and name, that verification left out
    """

    model: Any
    changes: list[Change] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    lock: Path | None = None
    found: set[str] = field(default_factory=set)
    unproved: set[Name] = field(default_factory=set)

    @property
    def rules(self) -> tuple[str, ...]:
        """The ids of the rules that changed something, in order."""
        return tuple(sorted({rule for change in self.changes for rule in change.rules}))

    def __enter__(self) -> Optimization:
        return self

    def __exit__(self, *problem: object) -> None:
        restore(self.model)

    def __str__(self) -> str:
        lines = [
            f"{type(self.model).__name__}: {len(self.changes)} methods rewritten, {len(self.left)}"
            " places left"
        ]
        lines += [f"  rules from {self.lock}"] if self.lock else []
        lines += [
            f"  {Path(change.file).name} {change.method}: {', '.join(change.rules)}"
            f" ({change.modules} modules)"
            for change in self.changes
        ]
        lines += [
            f"  left {Path(place.file).name} {place.place}: {place.reason}" for place in self.left
        ]
        return "\n".join(lines)


def optimize(
    model: Any,
    *,
    packs: Sequence[str] = (),
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
    lock: str | Path | bool | None = None,
    verify: bool = True,
    unsafe: bool = False,
    time_limit: float = 300.0,
) -> Optimization:
    """Rewrite the methods of a model's classes by the rules, in memory, for this model only.

    The modules stay the same objects with the same parameters, buffers and hooks; their files are
    not touched. With `verify` a method is only rewritten if running its whole file in both
    versions, in a child process, proves it. `packs`, `select` and `ignore` choose rules as on the
    command line, `lock` names a file that `regraft bench --select` wrote. Without any of them these
    are the rules of `regraft.lock.toml` in the working directory or its project, if there is one
    (False: never), else those that need nothing but PyTorch. `unsafe` adds rules that change what
    callers see.

    A copy of the model (`copy.copy`, `copy.deepcopy`) is rewritten as the model is. A pickle of it
    (`pickle.dumps`, `torch.save(model)`) holds the original classes, so it loads where Regraft is
    not installed; loading it warns that nothing of it is rewritten: call `optimize` on the loaded
    model again. A `state_dict` is that of the original.

    Raises ValueError for rules that do not exist or do not load and for a lock that does not fit
    them, VerifyError where nothing can be verified (no PyTorch for the child process). Warns with
    NothingOptimized if nothing was changed, and with OtherConditions if a lock was measured with
    other versions or on another device.
    """
    chosen = [*packs, *select, *ignore]
    if chosen and lock not in (None, False):
        raise ValueError(
            "rules are chosen by a lock file or by packs, select and ignore, not by both"
        )
    lock_path = _find_lock_file(lock, bool(chosen))
    rules = _load_rules([*packs, *select], ignore, lock_path, model)
    allowed = rules if unsafe else withhold_contract_rules(rules, "unsafe=True")
    result = rewrite(model, allowed, verify, time_limit=time_limit)
    result.lock = lock_path
    if lock_path is not None:
        result.left += [
            Left(str(lock_path), rule.rule.id, rule.withheld) for rule in allowed if rule.withheld
        ]
    if not result.changes:
        reasons = "; ".join(
            dict.fromkeys(f"{place.place}: {place.reason}" for place in result.left[:3])
        )
        default_reason = (
            f"{lock_path} holds no rule"
            if lock_path is not None and not rules
            else "no rule matches its source"
        )
        message = f"nothing in {type(model).__name__} was rewritten: {reasons or default_reason}"
        warnings.warn(message, NothingOptimized, stacklevel=2)
    return result


def rewrite(
    model: Any,
    rules: Sequence[CompiledRule],
    verify: bool,
    *,
    time_limit: float = 300.0,
    without: Collection[Name] = (),
) -> Optimization:
    """Rewrite a model's methods by these rules, except in the definitions `without`, given by file
    and name."""
    restore(model)
    result = Optimization(model)
    files = [
        _SourceFile(module, path, classes)
        for path, (module, classes) in _source_files(model).items()
    ]
    for file in files:
        file.rewrite(rules, verify, time_limit, result, without)
    _install(model, [file for file in files if file.rewritten is not None], result)
    return result


def restore(model: Any) -> None:
    """Give every module of the model its original class back."""
    for module in model.modules():
        cls = restore_class(type(module))
        if cls is not type(module):
            module.__class__ = cls


def _find_lock_file(lock: str | Path | bool | None, chosen: bool) -> Path | None:
    """Return the lock file that chooses the rules, or None.

    Raises ValueError where `lock` is True and there is no lock file.
    """
    if lock is False or (lock is None and chosen):
        return None
    path = nearest(Path.cwd()) if lock is None or lock is True else Path(lock)
    if path is None and lock is True:
        raise ValueError(
            "there is no regraft.lock.toml in the working directory or beside its pyproject.toml"
        )
    return path


def _load_rules(
    select: Sequence[str], ignore: Sequence[str], path: Path | None, model: Any
) -> tuple[CompiledRule, ...]:
    """Load the rules that the lock file at `path`, or else `select` and `ignore`, choose.

    Raises ValueError for a rule that does not load. Warns with OtherConditions where the lock file
    was measured with other versions or on another device.
    """
    if path is None:
        rules, problems = load_rules(select, ignore)
    else:
        lock = read(path)
        rules, problems = locked_rules(path, lock)
        device = next((parameter.device.type for parameter in model.parameters()), "")
        for note in notes(lock, torch.__version__, device):
            warnings.warn(f"{path}: {note}", OtherConditions, stacklevel=3)
    compiled, compile_problems = compile_rules(rules)
    for problem in (*problems, *compile_problems):
        raise ValueError(f"{problem.path}:{problem.line}: {problem.message}")
    # an existing model can no longer be decorated
    return tuple(rule for rule in compiled if not rule.decorates)


def _source_files(model: Any) -> dict[str, tuple[types.ModuleType, set[str]]]:
    """Return the source files of the model's classes and their bases, with module and class names,
    by path.

    Files of PyTorch and of Regraft are left out.
    """
    file_by_path: dict[str, tuple[types.ModuleType, set[str]]] = {}
    classes = dict.fromkeys(cls for module in model.modules() for cls in type(module).__mro__)
    for cls in (candidate for candidate in classes if issubclass(candidate, nn.Module)):
        module = sys.modules.get(cls.__module__)
        file = getattr(module, "__file__", None)
        is_user_code = cls.__module__.partition(".")[0] not in ("torch", "regraft", "builtins")
        if is_user_code and module is not None and file is not None and file.endswith(".py"):
            file_by_path.setdefault(file, (module, set()))[1].add(cls.__name__)
    return file_by_path


class _SourceFile:
    """A source file of the model with its rewritten methods, and the rules that rewrote each.

    classes    the names of the model's classes that the file defines
    rewritten  the methods to install; None where nothing is rewritten
    rules      the ids of the rules by the definition that they rewrote
    """

    def __init__(self, module: types.ModuleType, path: str, classes: set[str]) -> None:
        self.module, self.path, self.classes = module, path, classes
        self.rewritten: RewrittenMethods | None = None
        self.rules: dict[Name, tuple[str, ...]] = {}

    def rewrite(
        self,
        rules: Sequence[CompiledRule],
        verify: bool,
        time_limit: float,
        result: Optimization,
        without: Collection[Name],
    ) -> None:
        """Rewrite the file, and add to `result` what is left as it is; with `verify` only proved
        rewrites are kept."""
        left_places = result.left
        report = check_file(Path(self.path), rules)
        if report.source is None:
            left_places += [Left(self.path, "", error.message) for error in report.errors]
            return
        result.found |= {finding.rule.id for finding in report.findings if finding.fixable}
        left_places += [
            Left(
                self.path,
                _dotted_name(finding.cls, finding.function),
                f"{finding.rule.id}: {finding.reason}",
            )
            for finding in report.findings
            if not finding.fixable and finding.cls in self.classes
        ]
        try:
            verifier = _verifier(self.path, time_limit) if verify else None
            rewritten_text = self._rewrite_text(report, rules, verifier, result, without)
        except RuleDefect as defect:
            left_places.append(Left(self.path, "", defect.error.message))
            return
        before, after = ast.parse(report.source.text), ast.parse(rewritten_text)
        names = changed_definitions(before, after)
        if names is None:
            left_places.append(Left(self.path, "", "more than functions would have to change"))
        elif names:
            for function in [name for owner, name in names if not owner]:
                callers = definitions_reaching(after, {function})
                names |= callers
                self._add_rules(callers, self.rules.get(("", function), ()))
            old_statements = {ast.dump(node) for node in before.body}
            imports = [
                statement
                for statement in after.body
                if isinstance(statement, ast.Import | ast.ImportFrom)
            ]
            new_imports = [
                statement for statement in imports if ast.dump(statement) not in old_statements
            ]
            methods = {
                name
                for name in self._unreplaced(report, names, left_places)
                if not name[0] or name[0] in self.classes
            }
            try:
                self.rewritten = RewrittenMethods(
                    self.module, self.path, rewritten_text, new_imports, methods
                )
            except Exception as problem:  # noqa: BLE001 - decorators and defaults of the model's file run anew
                left_places.append(
                    Left(
                        self.path,
                        "",
                        f"cannot be defined anew: {type(problem).__name__}: {problem}",
                    )
                )

    def _rewrite_text(
        self,
        report: FileReport,
        rules: Sequence[CompiledRule],
        verify: Verify | None,
        result: Optimization,
        without: Collection[Name],
    ) -> bytes:
        """Return the text of the file after the rewrites, and count the rules of each definition.

        With `verify` only what is proved is rewritten, else everything but the definitions in
        `without`.
        """
        if verify is None:
            excluded = {name for file, name in without if file == self.path}
            rewritten_text, applied = rewrite_file(
                report, rules, wanted=lambda finding: definition(finding) not in excluded
            )
        else:
            fix = proved_fix(report, rules, verify)
            rewritten_text, applied = fix.data, fix.applied
            for verdict in fix.left_out:
                name = base_name(verdict.definition)
                result.left.append(Left(self.path, name, f"{verdict.status}: {verdict.reason}"))
                result.unproved.add((self.path, name))
        for finding in applied:
            self._add_rules(
                [(finding.cls or "", finding.function.partition(".")[0])], (finding.rule.id,)
            )
        return rewritten_text

    def _add_rules(self, names: Collection[Name], rules: Sequence[str]) -> None:
        """Add rules to those of the named definitions."""
        for name in names:
            self.rules[name] = tuple(dict.fromkeys((*self.rules.get(name, ()), *rules)))

    def _unreplaced(
        self, report: FileReport, names: set[Name], left_places: list[Left]
    ) -> Iterator[Name]:
        """Yield the definitions that the module still has as its file says; the replaced ones go to
        `left_places`."""
        assert report.source is not None
        codes = dict(
            _code_objects(compile(report.source.text, self.path, "exec", dont_inherit=True), "")
        )
        for owner, name in sorted(names):
            owner_object = vars(self.module).get(owner) if owner else self.module
            method = vars(owner_object).get(name) if owner_object is not None else None
            expected = codes.get(_dotted_name(owner, name))
            if any(function.__code__ == expected for function in functions_of(method)):
                yield owner, name
            else:
                left_places.append(
                    Left(
                        self.path,
                        _dotted_name(owner, name),
                        "something has replaced it since its file was read",
                    )
                )


def _verifier(path: str, time_limit: float) -> Verify:
    """Return the function that verifies a rewritten text of the file, or takes the verdict from the
    cache."""
    from regraft.source.cache_key import cache_directory
    from regraft.verify.types import OWN, Terms
    from regraft.verify.verdict_cache import verify_with_cache

    terms = Terms(keep=OWN)
    return lambda rewritten_text: verify_with_cache(
        Path(path), rewritten_text, time_limit=time_limit, root=cache_directory(), terms=terms
    )


def _dotted_name(cls: str | None, function: str) -> str:
    """Return the name of a method with its class, or of a function alone."""
    return f"{cls}.{function}" if cls else function


def _code_objects(code: types.CodeType, prefix: str) -> Iterator[tuple[str, types.CodeType]]:
    """Yield the code objects of functions and methods with their dotted names."""
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield prefix + constant.co_name, constant
            if not prefix:
                yield from _code_objects(constant, f"{constant.co_name}.")


def _install(model: Any, files: Sequence[_SourceFile], result: Optimization) -> None:
    """Give the model's modules classes with the rewritten methods, where the modules run these
    methods."""
    methods_by_class: dict[type, dict[str, tuple[_SourceFile, Name]]] = {}
    classes: dict[tuple[type, frozenset[str]], type] = {}
    counts: dict[tuple[str, Name], int] = {}
    for module in model.modules():
        cls = type(module)
        if cls not in methods_by_class:
            methods_by_class[cls] = dict(_rewritten_methods(cls, files, result.left))
        methods = {
            name: method
            for name, method in methods_by_class[cls].items()
            if name not in vars(module)
        }
        for name in methods_by_class[cls].keys() - methods.keys():
            result.left.append(
                Left(
                    methods_by_class[cls][name][0].path,
                    f"{cls.__name__}.{name}",
                    "this module has one of its own",
                )
            )
        if not methods:
            continue
        # PyTorch takes this class off by its base, so it stays the outermost
        parametrized = is_parametrized(cls)
        rewritten_cls = cls.__bases__[0] if parametrized else cls
        key = (rewritten_cls, frozenset(methods))
        if key not in classes:
            classes[key] = subclass(
                rewritten_cls,
                {name: _rewritten_method(*method) for name, method in methods.items()},
            )
        try:
            module.__class__ = rebase_class(cls, (classes[key],)) if parametrized else classes[key]
        except TypeError as problem:
            result.left.append(Left("", cls.__name__, str(problem)))
            continue
        for file, method in methods.values():
            counts[file.path, method] = counts.get((file.path, method), 0) + 1
    by_path = {file.path: file for file in files}
    for (path, method), count in counts.items():
        result.changes.append(
            Change(path, _dotted_name(*method), by_path[path].rules.get(method, ()), count)
        )


def _rewritten_method(file: _SourceFile, name: Name) -> Any:
    """Return the rewritten form of a method."""
    assert file.rewritten is not None
    return file.rewritten.methods[name[0]][name[1]]


def _rewritten_methods(
    cls: type, files: Sequence[_SourceFile], left_places: list[Left]
) -> Iterator[tuple[str, tuple[_SourceFile, Name]]]:
    """Yield the rewritten methods that an instance of `cls` runs, by name; `left_places` gets
    overridden ones."""
    hidden: set[str] = set()
    for ancestor in cls.__mro__:
        for file in files:
            assert file.rewritten is not None
            if vars(file.module).get(ancestor.__name__) is not ancestor:
                continue
            for name in file.rewritten.methods.get(ancestor.__name__, {}):
                if name not in hidden:
                    yield name, (file, (ancestor.__name__, name))
                else:
                    place = f"{ancestor.__name__}.{name}"
                    left_places.append(
                        Left(
                            file.path,
                            place,
                            f"{cls.__name__} has another one, and may call it by super()",
                        )
                    )
        hidden |= vars(ancestor).keys()
