"""The text of the host: readable Python for the control flow, which needs only NumPy and the
compiler's runtime."""

from __future__ import annotations

import ast

from regraft.splitting.compiling.compilers import Compiler
from regraft.splitting.network import Program
from regraft.splitting.program.residual import Branch, HostStep, Loop, RegionStep, Step
from regraft.splitting.program.result_classes import classes_source
from regraft.splitting.program.statements import write_statement, write_targets

# the text of host.py up to the sub-networks' methods; `host_head` fills the fields in single braces
HEAD = '''"""The control flow of {name}; its sub-networks are the files beside it."""

import hashlib
import json
from pathlib import Path

try:
    import numpy
{imports}except ModuleNotFoundError as missing:
    message = f"the network needs the package {{missing.name}}, which is not installed here: pip install {{missing.name}}"
    if __name__ == "__main__":
        raise SystemExit(message) from None
    raise ModuleNotFoundError(message, name=missing.name) from None
{classes}

class Host:
    """The network: `forward` takes and returns NumPy arrays in the place of tensors."""

    def __init__(self, directory=None{parameters}):
        self.directory = Path(directory or Path(__file__).parent)
        manifest = json.loads((self.directory / "manifest.json").read_text("utf-8"))
{overrides}        self.inputs = manifest["inputs"]
        self.prepare(manifest)
{load}        self.trace = []  # the sides that the last call took, in order

    def read(self, entry):
        """Return the content of a file; raise ValueError where it is not the file that was written."""
        content = (self.directory / entry["file"]).read_bytes()
        if hashlib.sha256(content).hexdigest() != entry["sha256"]:
            raise ValueError(f"{{entry['file']}} is not the file that the manifest describes")
        return content

    def region(self, entry):
        """Return the function that runs a sub-network, and the names and positions of its inputs."""
        inputs = [(f"i{{position}}", position) for position in entry["used"]]
        compiled = {compiled}
        described = [(key, entry["inputs"][position]) for key, position in inputs]
        numbers = [(key, value["name"]) for key, value in described if value["type"] == "int64" and not value["shape"]]

        def run(outputs, values):
            """Return the outputs; raise the error of `describe_failure` for what the runtime raises."""
            for key, name in numbers:
                if values[key].dtype.kind in "Ou":  # what NumPy makes of larger numbers
                    raise OverflowError(f"{{entry['place']}}: {{name}} is {{values[key]}}, and a sub-network takes whole numbers of 64 bits")
            try:
                return compiled(outputs, values)
            except OverflowError:  # a whole number that the runtime does not take
                raise
            except Exception as problem:
                raise self.describe_failure(entry, values, problem) from problem

        return run, inputs

    def describe_failure(self, entry, values, problem):
        """Return the error for a sub-network that fails: ValueError for sizes that it was not compiled for, else RuntimeError."""
        arrays = [(entry["inputs"][int(key[1:])], value) for key, value in values.items()]
        sizes = ", ".join(f"{{value['name']}} of {{array.shape}}" for value, array in arrays) or "no inputs"
        compiled = ", ".join(str(tuple("any" if size is None else size for size in value["shape"])) for value, _ in arrays)
        is_known = all(
            len(value["shape"]) == array.ndim
            and all(size in (None, own) for size, own in zip(value["shape"], array.shape))
            for value, array in arrays
        )
        reason = (str(problem).strip() or type(problem).__name__).splitlines()[0]
        if is_known:
            return RuntimeError(f"{{entry['place']}}: the sub-network fails for {{sizes}}, where the original may fail, too; if it does not, split again with this call among the examples: {{reason}}")
        return ValueError(f"{{entry['place']}}: no example has such sizes; the sub-network gets {{sizes}} and was compiled for {{compiled}}: split again with an example call of these sizes")

    def check(self, **arguments):
        """Raise ValueError for an argument that the network was not split for."""
        for name, value in arguments.items():
            expected = self.inputs[name]
            if "value" in expected:
                if repr(value) != expected["value"]:
                    raise ValueError(f"{{name}} is {{value!r}}; the network was split for {{expected['value']}}")
                continue
            array, shape = numpy.asarray(value), expected["shape"]
            has_shape = array.ndim == len(shape) and all(
                expected_size in (size, None) for size, expected_size in zip(array.shape, shape)
            )
            if not has_shape or array.dtype != expected["dtype"]:
                sizes = ", ".join("any" if size is None else str(size) for size in shape)
                description = f"{{expected['dtype']}} ({{sizes}})"
                raise ValueError(f"{{name}} is {{array.dtype}} {{array.shape}}; the network was split for {{description}}")

    def run(self, number, *values):
        """Run a sub-network on the values of its inputs, and return those of its outputs."""
        run, inputs = self.regions[number]
        return run(None, {{key: numpy.asarray(values[position]) for key, position in inputs}})

'''  # noqa: E501

# the method for sub-networks that torch runs
ISLAND = '''    def island(self, entry):
        """Return the function that runs a sub-network with torch."""
        self.read(entry)
        program = torch.export.load(self.directory / entry["file"])
        contents = {**program.state_dict, **program.constants}
        specs = program.graph_signature.input_specs
        weights = [contents[spec.target].detach() for spec in specs if spec.target is not None]
        network = program.graph_module  # a call of program.module() takes 40 us longer
        shapes = [tuple(description["shape"]) for description in entry["inputs"]]

        @torch.no_grad()
        def run(_, values):
            for value, shape in zip(values.values(), shapes):
                sizes = zip(shape, value.shape)
                if value.ndim != len(shape) or any(size not in (None, own) for size, own in sizes):
                    raise ValueError(f"{entry['file']} takes {shape}, not {value.shape}")
            tensors = [torch.from_numpy(numpy.array(value, order="C")) for value in values.values()]
            return [torch.as_tensor(output).numpy() for output in network(*weights, *tensors)]

        return run

'''


# the lines by which an argument of the host replaces a setting of the manifest
OVERRIDES = {
    "threads": """        if threads is not None:
            if type(threads) is not int or threads < 1:
                raise ValueError(f"threads is {threads!r}; give a whole number from 1 on")
            manifest["settings"]["threads"] = threads
""",
    "providers": """        if providers is not None:
            manifest["settings"]["providers"] = list(providers)
""",
}

LOAD = """        self.regions = [self.region(entry) for entry in manifest["regions"]]
"""


def host_source(program: Program, compiler: Compiler, has_islands: bool) -> str:
    """Return the text of host.py, whose `forward` runs one sample, with a call of `self.run` for
    each sub-network.

    has_islands: whether torch runs some of the sub-networks; the text then imports torch.
    """
    header = ", ".join(["self", *program.parameters])
    arguments = ", ".join(f"{parameter}={parameter}" for parameter in program.inputs)
    forward = (
        f"    def forward({header}):\n        self.check({arguments})\n        self.trace = []\n"
    )
    return host_module(
        host_head(program, LOAD, has_islands, compiler),
        forward + "\n".join(Writer().write_steps(program.steps, 2)) + "\n",
    )


def host_module(head: str, body: str) -> str:
    """Return `head` followed by `body`; `head` gets the line `import math` where the body contains
    the text "math."."""
    return (
        head.replace("import json\n", "import json\nimport math\n", 1) if "math." in body else head
    ) + body


def host_head(program: Program, load: str, has_islands: bool, compiler: Compiler) -> str:
    """Return the text before `forward`: imports, the classes of results, and of `Host` the methods
    that load and run sub-networks, with the lines `load` at the end of `__init__`, which load what
    `forward` needs, and, with `has_islands`, a method for the sub-networks that torch runs."""
    modules = sorted({compiler.module, *(["torch"] if has_islands else [])})
    imports = "".join(f"    import {module}\n" for module in modules)
    compiled = "self.compiled(entry)"
    if has_islands:
        compiled = f'self.island(entry) if "reason" in entry else {compiled}'
    text = HEAD.format(
        name=program.name,
        imports=imports,
        classes=classes_source(program.classes),
        compiled=compiled,
        load=load,
        parameters="".join(f", {name}=None" for name in sorted(compiler.settings)),
        overrides="".join(OVERRIDES[name] for name in sorted(compiler.settings)),
    )
    return text + compiler.host + (ISLAND if has_islands else "")


class Writer:
    """Writes residual steps as lines of Python.

    trace: the expression of the list in which a call notes the numbers of the sides taken. call:
    the text of the call of a region, with `{}` in the place of its number and inputs.
    """

    def __init__(self, trace: str = "self.trace", call: str = "self.run({})") -> None:
        self.trace, self.call = trace, call

    def write_steps(self, steps: list[Step], depth: int) -> list[str]:
        """Return the lines of a block, indented by `depth` times four blanks; the line `pass` for
        no steps."""
        lines = [line for step in steps for line in self.write_step(step, depth)]
        return lines or ["    " * depth + "pass"]

    def write_step(self, step: Step, depth: int) -> list[str]:
        """Return the lines of one step with its bodies; raise TypeError for a tensor step, which
        belongs into a region."""
        pad = "    " * depth
        if isinstance(step, RegionStep):
            outputs = write_targets(step.outputs)
            return [
                f"{pad}{outputs} = {self.call.format(', '.join([str(step.number), *step.inputs]))}"
            ]
        if isinstance(step, HostStep):
            return [pad + write_statement(step.statement)]
        if isinstance(step, Loop):
            head = "while True:"
            if step.header is not None:
                head = f"for {step.header[0]} in {ast.unparse(step.header[1])}:"
            return [pad + head, *self.write_steps(step.body, depth + 1)]
        if isinstance(step, Branch):
            return self.write_branch(step, depth)
        raise TypeError(f"{type(step).__name__} outside a region")

    def write_branch(self, step: Branch, depth: int) -> list[str]:
        """Return the lines of a branch as `if`, `elif` and `else`. An arm whose number is not -1
        first adds the number to the trace; one without this and without steps is a `pass`."""
        lines = []
        for number, (test, body) in enumerate(step.arms):
            keyword = "if" if number == 0 else "elif"
            lines.append(
                "    " * depth
                + (f"{keyword} {ast.unparse(test)}:" if test is not None else "else:")
            )
            if step.numbers[number] >= 0:
                lines.append("    " * (depth + 1) + f"{self.trace}.append({step.numbers[number]})")
            if body or step.numbers[number] < 0:
                lines.extend(self.write_steps(body, depth + 1))
        return lines
