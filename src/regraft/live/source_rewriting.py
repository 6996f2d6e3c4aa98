"""The source files of a model: their text is rewritten by the rules, and the changed methods are
defined anew."""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from regraft.configuration import Settings as Project
from regraft.fix import Verify, base_name, definition, proved_fix
from regraft.live.changed_definitions import Name, changed_definitions, definitions_reaching
from regraft.live.optimization_result import Optimization, Unchanged, dotted_name
from regraft.live.rewritten_classes import RewrittenMethods, functions_of
from regraft.live.stored_model import Example
from regraft.report.terminal import Watch
from regraft.scanning import CompiledRule, FileReport, Finding, RuleDefect, check_file, rewrite_file
from regraft.scanning.compiled_rules import are_tested
from regraft.scanning.rule_selection import rules_for


@dataclass(frozen=True, slots=True)
class Settings:
    """The way in which files are rewritten.

    verify      whether only what running both versions proves is rewritten
    example     the model, with calls, for the process that verifies; None where it is to build
                models of its own
    time_limit  seconds of processor time to verify one file
    excluded    the definitions, by file and name, that are not rewritten without `verify`
    project     the rules that are ignored in files, and what a proof must not lose
    watch       is called with what is run: a file, and a definition in it
    """

    verify: bool
    example: Example | None
    time_limit: float
    excluded: Collection[Name]
    project: Project
    watch: Watch


def model_files(model: Any) -> list[ModelFile]:
    """Return a ModelFile for each Python file that defines a class of the model's modules, or a
    base of one, with the names of these classes; files of PyTorch and of Regraft are left out."""
    file_by_path: dict[str, ModelFile] = {}
    classes = dict.fromkeys(cls for module in model.modules() for cls in type(module).__mro__)
    for cls in classes:
        module = _user_module(cls) if issubclass(cls, nn.Module) else None
        path = getattr(module, "__file__", None)
        if module is not None and path is not None and path.endswith(".py"):
            file = file_by_path.setdefault(path, ModelFile(module, path))
            file.classes.add(cls.__name__)
    return list(file_by_path.values())


def _user_module(cls: type) -> types.ModuleType | None:
    """Return the imported module of a class; None for a class of PyTorch, Regraft or Python, and
    where its module is not imported."""
    if cls.__module__.partition(".")[0] in ("torch", "regraft", "builtins"):
        return None
    return sys.modules.get(cls.__module__)


class ModelFile:
    """A source file of a model with its rewritten methods, and the rules that rewrote each.

    classes    the names of the model's classes that the file defines
    rewritten  the methods to install; None where nothing is rewritten
    rules      the ids of the rules by the definition that they rewrote
    """

    def __init__(self, module: types.ModuleType, path: str) -> None:
        self.module, self.path = module, path
        self.classes: set[str] = set()
        self.rewritten: RewrittenMethods | None = None
        self.rules: dict[Name, tuple[str, ...]] = {}

    def rewrite(
        self, rules: Sequence[CompiledRule], settings: Settings, result: Optimization
    ) -> None:
        """Rewrite the text of the file in memory, and store the methods to install in `rewritten`,
        where there are any. Add to `result` the rules that apply and the places that stay as they
        are, with their reasons. The file on disk is not changed."""
        settings.watch(Path(self.path).name)
        rules = rules_for(Path(self.path), tuple(rules), settings.project)
        report = check_file(Path(self.path), rules)
        if report.source is None:
            for error in report.errors:
                result.add_unchanged(self.path, "", error.message)
            return
        self._add_findings(report, result)
        try:
            text = self._rewrite_text(report, rules, settings, result)
        except RuleDefect as defect:
            result.add_unchanged(self.path, "", defect.error.message)
            return
        before, after = ast.parse(report.source.text), ast.parse(text)
        names = changed_definitions(before, after)
        if names is None:
            result.add_unchanged(self.path, "", "more than functions would have to change")
        elif names:
            names |= self._add_callers(after, names)
            present_names = self._unreplaced_definitions(report, names, result.unchanged)
            imports = _new_imports(before, after)
            self._define_methods(text, imports, present_names, result)

    def rewritten_method(self, name: Name) -> Any:
        """Return the function, or other attribute of a class, that takes the place of a method;
        `rewritten` has to be set."""
        assert self.rewritten is not None
        return self.rewritten.methods[name[0]][name[1]]

    def _add_findings(self, report: FileReport, result: Optimization) -> None:
        """Add to `result` the rules that can rewrite something in the file, and the withheld places
        in the model's classes."""
        for finding in report.findings:
            if finding.fixable:
                result.applicable.add(finding.rule.id)
            elif finding.cls in self.classes:
                place = dotted_name(finding.cls, finding.function)
                result.add_unchanged(self.path, place, f"{finding.rule.id}: {finding.reason}")

    def _rewrite_text(
        self,
        report: FileReport,
        rules: Sequence[CompiledRule],
        settings: Settings,
        result: Optimization,
    ) -> bytes:
        """Return the text of the file after the rewrites that are proved, or without `verify` after
        all that are not excluded. Note the rules of each definition in `rules`, and in `result`
        what verification left out. Raise RuleDefect where a rule's own rewrite does not parse or
        does not come to an end."""
        if settings.verify:
            verify = self._verifier(settings, are_tested(rules))
            fix = proved_fix(report, rules, verify, wanted=self._concerns_model)
            text, applied = fix.data, fix.applied
            for verdict in fix.left_out:
                name = base_name(verdict.definition)
                result.add_unchanged(self.path, name, f"{verdict.status}: {verdict.reason}")
                result.unproved.add((self.path, name))
            if settings.example is not None:
                settings.example.is_needed |= any(
                    verdict.status == "refuted" for verdict in fix.left_out
                )
        else:
            excluded = {name for file, name in settings.excluded if file == self.path}
            text, applied = rewrite_file(
                report, rules, wanted=lambda finding: definition(finding) not in excluded
            )
        for finding in applied:
            rewritten_name = (finding.cls or "", finding.function.partition(".")[0])
            self._add_rules([rewritten_name], (finding.rule.id,))
        return text

    def _concerns_model(self, finding: Finding) -> bool:
        """Return whether a finding is in a function of the file, or in a class that the model
        has."""
        return not finding.cls or finding.cls.partition(".")[0] in self.classes

    def _verifier(self, settings: Settings, tested: bool) -> Verify:
        """Return the function that verifies a rewritten text of the file, or takes the verdict from
        the cache. `tested` as in `Terms.by_rules`."""
        from regraft.source.cache_key import cache_directory
        from regraft.verification.types import Terms
        from regraft.verification.verdict_cache import verify_with_cache

        file = Path(self.path).name
        terms, driver = Terms(keep=settings.project.keep).for_rules(tested=tested), None
        if settings.example is not None:
            terms = replace(terms, model_classes=tuple(sorted(self.classes)))
            driver = settings.example.write_driver(self.module.__name__)
        return lambda rewritten_text, proved: verify_with_cache(
            Path(self.path),
            rewritten_text,
            driver,
            settings.time_limit,
            root=cache_directory(),
            terms=replace(terms, confirmed=tuple(sorted(proved))),
            watch=lambda part: settings.watch(f"{file}: {part}" if part else file),
        )

    def _add_callers(self, tree: ast.Module, names: Collection[Name]) -> set[Name]:
        """Return the definitions that call a changed function, directly or not, and add the
        function's rules to theirs in `rules`."""
        callers: set[Name] = set()
        for function in [name for owner, name in names if not owner]:
            function_callers = definitions_reaching(tree, {function})
            callers |= function_callers
            self._add_rules(function_callers, self.rules.get(("", function), ()))
        return callers

    def _add_rules(self, names: Collection[Name], rules: Sequence[str]) -> None:
        """Add rules to those of the named definitions in `self.rules`, each once."""
        for name in names:
            self.rules[name] = tuple(dict.fromkeys((*self.rules.get(name, ()), *rules)))

    def _unreplaced_definitions(
        self, report: FileReport, names: Collection[Name], unchanged: list[Unchanged]
    ) -> set[Name]:
        """Return the functions, and the methods of the model's classes, that the module still has
        as its file says; add the replaced ones to `unchanged`."""
        assert report.source is not None
        code = compile(report.source.text, self.path, "exec", dont_inherit=True)
        codes = dict(_code_objects(code, ""))
        present_names: set[Name] = set()
        for owner, name in sorted(names):
            owner_object = vars(self.module).get(owner) if owner else self.module
            method = vars(owner_object).get(name) if owner_object is not None else None
            expected = codes.get(dotted_name(owner, name))
            if any(function.__code__ == expected for function in functions_of(method)):
                if not owner or owner in self.classes:
                    present_names.add((owner, name))
            else:
                reason = "something has replaced it since its file was read"
                unchanged.append(Unchanged(self.path, dotted_name(owner, name), reason))
        return present_names

    def _define_methods(
        self,
        text: bytes,
        imports: Collection[ast.stmt],
        names: Collection[Name],
        result: Optimization,
    ) -> None:
        """Execute the named definitions of the rewritten text and store them in `rewritten`; where
        that raises, note it in `result` instead.

        imports  the import statements that the original file does not have
        """
        try:
            self.rewritten = RewrittenMethods(self.module, self.path, text, imports, names)
        except Exception as problem:  # noqa: BLE001 - decorators and defaults of the file run anew
            reason = f"cannot be defined anew: {type(problem).__name__}: {problem}"
            result.add_unchanged(self.path, "", reason)


def _new_imports(before: ast.Module, after: ast.Module) -> list[ast.stmt]:
    """Return the imports at the top of `after` that `before` does not have."""
    old_statements = {ast.dump(node) for node in before.body}
    imports = [node for node in after.body if isinstance(node, ast.Import | ast.ImportFrom)]
    return [node for node in imports if ast.dump(node) not in old_statements]


def _code_objects(code: types.CodeType, prefix: str) -> Iterator[tuple[str, types.CodeType]]:
    """Yield the code objects of the functions, classes and methods in a module's code, with their
    dotted names; of nested functions only those in a class or function at the top.

    prefix: "" for a module's code, else the name of the class with a dot.
    """
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield prefix + constant.co_name, constant
            if not prefix:
                yield from _code_objects(constant, f"{constant.co_name}.")
