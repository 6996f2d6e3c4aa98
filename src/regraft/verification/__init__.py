"""Prove a rewrite by running both versions: `verify` returns one evidence-based verdict per changed
definition."""

from regraft.verification.parent_process import check_syntax, to_json, verify
from regraft.verification.types import Status, Verdict, VerifyError

__all__ = ["Status", "Verdict", "VerifyError", "check_syntax", "to_json", "verify"]
