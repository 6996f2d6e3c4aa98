"""Test where a Linear layer of concatenated parts is rewritten, and which parts are told how they
were enlarged."""

from __future__ import annotations

from regraft.rules import load_rules
from regraft.scanning import FileReport, check_source, compile_rules, rewrite_file
from regraft.source.text import SourceFile, parse

RULES, PROBLEMS = compile_rules(load_rules(["idioms/linear-before-expand"])[0])
assert not PROBLEMS
HEAD = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.fc = nn.Linear(2 * width, width)
        self.mlp = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(inplace=True), nn.Linear(width, 1))
        self.mlps = nn.ModuleList([self.mlp])

"""  # noqa: E501


def run(body: str, home: str = "regraft.ops") -> tuple[FileReport, str]:
    """Return the report and the rewritten text of a method."""
    lines = body.strip("\n").splitlines()
    text = HEAD + "".join(f"    {line}\n" if line.strip() else "\n" for line in lines)
    source = parse("model.py", text.encode())
    assert isinstance(source, SourceFile)
    report = check_source(source, RULES)
    return report, rewrite_file(report, RULES, home)[0].decode()


def is_unchanged(body: str) -> bool:
    """Return whether nothing is rewritten in a method."""
    report, changed = run(body)
    return changed == report.source.text.decode() if report.source else False


def test_a_container_is_passed_whole() -> None:
    _, changed = run("""
def forward(self, h, row, col):
    joint = torch.cat([h[row], h[col]], dim=1)
    out = self.mlp(joint)
    return out * 2
""")
    assert "joint = [rows_part(h, row), rows_part(h, col)]" in changed
    assert "out = linear_of_parts(joint, self.mlp, 1)" in changed
    assert "torch.cat" not in changed


def test_a_container_without_a_path_is_left_alone() -> None:
    assert is_unchanged("""
def forward(self, h, row, col):
    for mlp in self.mlps:
        h = h + mlp(torch.cat([h[row], h[col]], dim=1)).sum()
    return h
""")


def test_a_part_that_is_read_before_a_change_in_place_stays_a_tensor() -> None:
    _, changed = run("""
def forward(self, h, row, col):
    source = h[row]
    h += 1
    return self.fc(torch.cat([source, h[col]], dim=1))
""")
    assert "source = h[row]" in changed
    assert "return linear_of_parts([source, rows_part(h, col)], self.fc, 1)" in changed


def test_a_change_in_place_before_the_layer() -> None:
    report, _ = run("""
def forward(self, h, row, col):
    joint = torch.cat([h[row], h[col]], dim=1)
    h += 1
    return self.fc(joint)
""")
    (finding,) = report.findings
    assert finding.patch is None


def test_a_part_outside_of_the_loop_of_its_layer_stays_a_tensor() -> None:
    _, changed = run("""
def forward(self, h, x, steps: int):
    style = h.unsqueeze(1).repeat(1, 5, 1)
    for _ in range(steps):
        x = torch.relu(self.fc(torch.cat((style, x.expand(3, 5, -1)), 2))).sum(1, keepdim=True)
    return x
""")
    assert "style = h.unsqueeze(1).repeat(1, 5, 1)" in changed
    assert "linear_of_parts((style, expanded_part(x, (3, 5, -1))), self.fc, 2)" in changed


def test_parts_of_one_branch_and_other_modes_are_left_alone() -> None:
    assert is_unchanged("""
def forward(self, x, style, wide: bool):
    if wide:
        style = style[:, None].expand_as(x)
    return self.fc(torch.cat([x, style], dim=-1))
""")
    assert is_unchanged("""
def forward(self, x, row, col):
    with torch.no_grad():
        joint = torch.cat([x[row], x[col]], dim=-1)
    return self.fc(joint)
""")


def test_elements_of_lists_are_no_rows() -> None:
    assert is_unchanged("""
def forward(self, features, step: int):
    return self.fc(torch.cat([features[step], features[0]], dim=-1))
""")


def test_arguments_with_a_star_are_left_alone() -> None:
    _, changed = run("""
def forward(self, x, h, sizes):
    return self.fc(torch.cat([x.expand(2, -1), h.repeat(*sizes)], dim=1))
""")
    assert "linear_of_parts([expanded_part(x, (2, -1)), h.repeat(*sizes)], self.fc, 1)" in changed


def test_vendored_parts_are_found_and_imported_once() -> None:
    _, changed = run(
        """
def forward(self, h, row, col):
    return self.fc(torch.cat([h[row, :], h[col, :]], dim=1))
""",
        home="regraft_ops",
    )
    assert "from regraft_ops import linear_of_parts, rows_part\n" in changed
    parts = "[rows_part(h, row, whole=True), rows_part(h, col, whole=True)]"
    assert f"linear_of_parts({parts}, self.fc, 1)" in changed


def test_a_tensor_that_something_may_change_before_the_concatenation() -> None:
    for change in (
        "h.data = h * 2",
        "torch.add(h, 1, out=h)",
        "self.helper.change(h)",
        "self.helper.change([h[:2]], h)",
        "self.helper.change((h,))",
    ):
        _, changed = run(f"""
def forward(self, h, row, col):
    source = h[row]
    {change}
    return self.fc(torch.cat([source, h[col]], dim=1))
""")
        assert "source = h[row]" in changed, change
        assert "linear_of_parts([source, rows_part(h, col)], self.fc, 1)" in changed, change
    _, changed = run("""
def forward(self, h, row, col):
    source = self.table[row]
    self.helper.change()
    target = h[col]
    h = self.helper.change(row)
    return self.fc(torch.cat([source, target], dim=1))
""")
    assert "source = self.table[row]" in changed
    assert "target = rows_part(h, col)" in changed
