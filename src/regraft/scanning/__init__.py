"""Scanning: from files to findings, and from findings to a rewritten file."""

from regraft.scanning.check import check_file, check_source, check_text, collected_between, failed
from regraft.scanning.compiled_rules import (
    CompiledRule,
    compile_rules,
    with_worth,
    withhold_contract_rules,
)
from regraft.scanning.files import FileSearch, is_secondary
from regraft.scanning.findings import FileReport, Finding, Miss
from regraft.scanning.fixpoint import RuleDefect, apply_patches, choose, rewrite_file

__all__ = [
    "CompiledRule",
    "FileReport",
    "FileSearch",
    "Finding",
    "Miss",
    "RuleDefect",
    "apply_patches",
    "check_file",
    "check_source",
    "check_text",
    "choose",
    "collected_between",
    "compile_rules",
    "failed",
    "is_secondary",
    "rewrite_file",
    "with_worth",
    "withhold_contract_rules",
]
