"""The report of `regraft check` as XML of JUnit."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from regraft.report.annotations import path_in_project

if TYPE_CHECKING:
    from regraft.report.json_report import Collector

_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(total: Collector, seconds: float) -> str:
    """Return the suite of a check: a test for each finding and error, failed where it could be
    fixed, skipped where it is withheld; a passed one where there is none."""
    numbers = total.summary()
    counts = {
        "tests": str(max(len(total.findings) + numbers["errors"], 1)),
        "failures": str(sum(finding["fixable"] for finding in total.findings)),
        "skipped": str(numbers["withheld"]),
        "errors": str(numbers["errors"]),
        "time": f"{seconds:.3f}",
    }
    suites = ET.Element("testsuites", {"name": "regraft", **counts})
    suite = ET.SubElement(suites, "testsuite", {"name": "regraft check", **counts})
    for finding in total.findings:
        place = f"{finding['start']['line']}:{finding['start']['column']}"
        case = _case(suite, finding["file"], f"{finding['rule']} {place}")
        kind = "failure" if finding["fixable"] else "skipped"
        _add(case, kind, f"{finding['message']}: {finding['help']}")
    for error in total.errors:
        place = f" {error.line}:{error.column}" if error.line else ""
        _add(_case(suite, error.file, f"error{place}"), "error", error.message)
    if not (total.findings or total.errors):
        _case(suite, "regraft", "no findings")
    return ET.tostring(suites, encoding="unicode", xml_declaration=True)


def _case(suite: ET.Element, file: str, name: str) -> ET.Element:
    path = _NO_XML.sub("?", path_in_project(file))
    return ET.SubElement(suite, "testcase", classname=path, name=_NO_XML.sub("?", name))


def _add(case: ET.Element, kind: str, message: str) -> None:
    ET.SubElement(case, kind, message=_NO_XML.sub("?", message))
