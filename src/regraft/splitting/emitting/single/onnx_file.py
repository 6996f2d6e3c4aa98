"""The single ONNX file: made from the host's steps, and called like the network."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy
import onnx
import onnxruntime
from onnx import helper

from regraft.splitting.compiling.engine_settings import EngineSettings, engine_settings
from regraft.splitting.compiling.onnx_export import open_session
from regraft.splitting.emitting.single.graph import Graph
from regraft.splitting.emitting.single.graph_values import (
    Const,
    Items,
    Maybe,
    Names,
    NestedList,
    Number,
    Rows,
    Sequence,
    Tensor,
    Value,
    describe_value,
)
from regraft.splitting.emitting.single.path_types import Inexpressible, name_of
from regraft.splitting.emitting.single.region_inlining import Regions
from regraft.splitting.emitting.single.step_lowering import Lowering
from regraft.splitting.emitting.split_report import FORMAT, check_format
from regraft.splitting.errors import Unsplittable
from regraft.splitting.nested_arguments import Packed
from regraft.splitting.network import Program
from regraft.splitting.program.result_classes import Classes, make_classes
from regraft.splitting.sampling.numpy_conversion import to_numpy, to_torch

MAX_FILE_BYTES = 2**31 - 2**20  # the limit of Protocol Buffers
MAX_NESTING = 30  # graphs within graphs that Protocol Buffers read
FILE = "network.onnx"
PLAIN_RESULTS = (type(None), bool, int, float, str)  # constants that the file's metadata hold
# in ONNX Runtime's message: the name of a node that stands for a `raise` (graph.py)
RAISED = re.compile(r"Name:'((?:[^']|'(?! Status))*?) \[v\.\d+\]'")
METADATA_KEY = "regraft"  # the key in the file's metadata


def build_onnx_model(
    program: Program, directory: Path, manifest: dict[str, Any]
) -> onnx.ModelProto:
    """Return the host's program around the compiled regions of `directory` as one ONNX model, whose
    metadata describe its inputs and result.

    Raises Unsplittable with file, line and reason where ONNX cannot express it.
    """
    compiled = Regions(directory, manifest, program.regions)
    graph = Graph(itertools.count())
    names = add_inputs(graph, manifest["inputs"])
    lowering = Lowering(program.network.place, compiled)
    result = lowering.lower_program(program.steps, names, graph)
    prefix = "result_" if "result" in names else "result"
    try:
        result_tree = add_results(graph, result, prefix, program.classes)
    except Inexpressible as problem:
        raise lowering.refuse(str(problem)) from problem
    if not graph.outputs:
        raise lowering.refuse("a result that no input decides")
    check_depth(graph, program.network.place)
    graph.place_weights()
    check_weights(graph, program.network.place)
    opsets = [helper.make_opsetid(domain, version) for domain, version in compiled.opsets.items()]
    model = helper.make_model(
        graph.to_proto("network"), producer_name="regraft", opset_imports=opsets, ir_version=9
    )
    add_metadata(
        model,
        format=FORMAT,
        versions=manifest["versions"],
        inputs=manifest["inputs"],
        result=result_tree,
    )
    return model


def add_inputs(graph: Graph, descriptions: dict[str, dict[str, Any]]) -> Names:
    """Make the tensors among the network's inputs the inputs of the graph, and return them as
    values by name.

    descriptions: the manifest's entry of each input. Constants among the inputs are left out, as
    they stand in the program itself; open sizes (None) get names.
    """
    names: Names = {}
    for key, description in descriptions.items():
        if "value" in description:
            continue
        shape = [
            f"{key}_{dim}" if size is None else size
            for dim, size in enumerate(description["shape"])
        ]
        graph.inputs.append((key, (description["dtype"], shape)))
        names[key] = Tensor(key, description["dtype"], len(shape))
    return names


def check_depth(graph: Graph, place: tuple[str, int]) -> None:
    """Raise Unsplittable, at `place`, where graphs are nested deeper than Protocol Buffers read."""
    if max_depth(graph) > MAX_NESTING:
        raise Unsplittable(
            *place,
            f"decisions within decisions, {max_depth(graph)} deep, cannot be part of an ONNX file",
        )


def check_weights(graph: Graph, place: tuple[str, int]) -> None:
    """Raise Unsplittable, at `place`, where the weights are larger than a file of Protocol
    Buffers."""
    if sum(array.nbytes for array in graph.all_weights().values()) > MAX_FILE_BYTES:
        raise Unsplittable(*place, "more than 2 GB of weights cannot be part of a single ONNX file")


def add_metadata(model: onnx.ModelProto, **facts: Any) -> None:
    """Add `facts`, which have to be JSON, to the dictionary in the model's metadata, in place;
    facts of the same names are replaced."""
    recorded = json.loads(model.metadata_props[0].value) if model.metadata_props else {}
    helper.set_model_props(model, {METADATA_KEY: json.dumps({**recorded, **facts})})


def max_depth(graph: Graph) -> int:
    """Return the largest `depth` among a graph and those within it."""
    return max([graph.depth, *map(max_depth, graph.children())])


def add_results(graph: Graph, value: Value, name: str, classes: Classes) -> Any:
    """Make each leaf (number, tensor or list) of a result an output of the graph, named `name` and
    its place in the result; return a tree that says how the result is built from them.

    The tree is a dictionary with one key: "value", "tuple", "list", "dict", "object", "tensor",
    "numbers", "sequence", "rows" (a list of tuples, as the trees of its parts) or "optional" (the
    output that says whether it is not None, and the tree of the value). classes: form and fields of
    each class of a result. Raises Inexpressible for what cannot be a result.
    """
    if isinstance(value, Const) and isinstance(value.value, PLAIN_RESULTS):
        return {"value": value.value}
    if isinstance(value, Items):
        return add_result_items(graph, value, name, classes)
    if isinstance(value, Maybe):
        present = add_results(graph, value.present, f"{name}.present", classes)["numbers"]
        return {"optional": [present, add_results(graph, value.value, name, classes)]}
    if isinstance(value, Rows):
        parts = enumerate(value.values)
        return {
            "rows": [add_results(graph, part, f"{name}_{place}", classes) for place, part in parts]
        }
    if isinstance(value, (Number, Tensor, Sequence, NestedList)):
        graph.add_alias(name_of(graph, value), name)
        graph.outputs.append((name, value))
        return {kind_of_result(value): name}
    raise Inexpressible(f"{describe_value(value)} as a result")


def add_result_items(graph: Graph, value: Items, name: str, classes: Classes) -> dict[str, Any]:
    """Make each leaf of a tuple, list, dict or object an output of the graph; return its tree:
    {"tuple": trees}, {"list": trees}, {"dict": trees by key}, or {"object": [the form and fields of
    its class by name, trees by field]}."""
    keys = value.keys or range(len(value.values))
    parts = [
        add_results(graph, element, f"{name}_{key}", classes)
        for key, element in zip(keys, value.values, strict=True)
    ]
    if value.kind in ("tuple", "list"):
        return {value.kind: parts}
    fields = dict(zip(value.keys, parts, strict=True))
    if value.kind == "dict":
        return {"dict": fields}
    return {"object": [{value.kind: classes[value.kind]}, fields]}


def kind_of_result(value: Number | Tensor | Sequence | NestedList) -> str:
    """Return the key of an output in the tree of a result: "numbers" where it is returned as
    Python's numbers, "sequence" for a list of tensors, "tensor" for a tensor."""
    if isinstance(value, (Number, NestedList)):
        return "numbers"
    if isinstance(value, Sequence):
        return "numbers" if isinstance(value.element, Number) else "sequence"
    return "tensor"


def rebuild_result(tree: dict[str, Any], outputs: dict[str, Any]) -> Any:
    """Return the network's result, with arrays for tensors.

    tree: how it is built, as `add_results` says. outputs: the outputs of the ONNX model by name.
    """
    ((kind, part),) = tree.items()
    if kind == "value":
        return part
    if kind in ("tuple", "list"):
        return {"tuple": tuple, "list": list}[kind](
            rebuild_result(element, outputs) for element in part
        )
    if kind == "object":
        (result_class,) = make_classes(part[0]).values()
        return result_class(
            **{key: rebuild_result(field, outputs) for key, field in part[1].items()}
        )
    if kind == "dict":
        return {key: rebuild_result(element, outputs) for key, element in part.items()}
    if kind == "numbers":
        return to_python(outputs[part])
    if kind == "optional":
        return rebuild_result(part[1], outputs) if to_python(outputs[part[0]]) else None
    if kind == "rows":
        return list(zip(*(rows_of(tree, outputs) for tree in part), strict=True))
    return (
        [numpy.asarray(array) for array in outputs[part]]
        if kind == "sequence"
        else numpy.asarray(outputs[part])
    )


def rows_of(tree: dict[str, Any], outputs: dict[str, Any]) -> list[Any]:
    """Return the elements that a list of tuples has at one place of these; of a tensor its
    rows."""
    return [
        numpy.asarray(element) if "tensor" in tree else element
        for element in rebuild_result(tree, outputs)
    ]


def to_python(value: Any) -> Any:
    """Return an array as a Python number or nested lists of them; a list of arrays as the list of
    these."""
    return (
        [to_python(element) for element in value]
        if isinstance(value, list)
        else numpy.asarray(value).tolist()
    )


def read_metadata(session: onnxruntime.InferenceSession, path: Path) -> dict[str, Any]:
    """Return the dictionary that Regraft wrote into the file's metadata; raise ValueError for a
    file without it. path: the file's, for the message."""
    recorded = session.get_modelmeta().custom_metadata_map.get(METADATA_KEY)
    if recorded is None:
        raise ValueError(f"{path} is no network that was split")
    facts: dict[str, Any] = json.loads(recorded)
    check_format(facts, path)
    return facts


def load_session(path: Path, settings: EngineSettings) -> onnxruntime.InferenceSession:
    """Return a session for the file; raise ValueError where ONNX Runtime cannot load it."""
    try:
        return open_session(str(path), settings)
    except Exception as problem:
        raise ValueError(f"ONNX Runtime cannot load {path}: {problem}") from problem


def describe_failure(
    inputs: dict[str, dict[str, Any]], arrays: dict[str, Any], problem: Exception
) -> Exception:
    """Return the error for a call that fails in ONNX Runtime: ValueError for arrays that are not as
    `inputs` describes them, else RuntimeError with what the network raises, or with the sizes and
    the reason."""
    reason = " ".join(str(problem).split())
    for key, array in arrays.items():
        shape, dtype = inputs[key]["shape"], inputs[key]["dtype"]
        if array.dtype != dtype or not fits_shape(array.shape, shape):
            sizes = ", ".join("any" if size is None else str(size) for size in shape)
            return ValueError(
                f"{key} is {array.dtype} {array.shape}; the network was split for {dtype}"
                f" ({sizes}): {reason}"
            )
    raised = RAISED.findall(reason)
    if raised:
        return RuntimeError(f"the network raises an error: {raised[-1]}")
    sizes = ", ".join(f"{key} of {array.shape}" for key, array in arrays.items())
    return RuntimeError(
        f"the network fails for {sizes}, where the original may fail, too; if it does not, split"
        f" again with this call among the examples: {reason}"
    )


def fits_shape(shape: tuple[int, ...], described: list[int | None]) -> bool:
    """Return whether an array's shape is as described; None stands for any size."""
    return len(shape) == len(described) and all(
        size in (None, own) for size, own in zip(described, shape, strict=True)
    )


class SingleFile:
    """A network in one ONNX file, called like the original: torch tensors in and out.

    report: the report of the split. scratch: an object, such as a temporary directory, that is kept
    alive as long as this one. settings: how ONNX Runtime runs it; None for those that the file
    records. `packed`: None, or how the parts of the original's arguments are the
    file's inputs. Raises ValueError for a file that ONNX Runtime cannot load or Regraft did not
    write; ONNX Runtime refuses inputs of types and sizes that the network was not split for.
    """

    def __init__(
        self,
        path: Path,
        report: Any = None,
        scratch: Any = None,
        settings: EngineSettings | None = None,
    ) -> None:
        """Load the file into a session of ONNX Runtime, and read its metadata. Raises ValueError
        where ONNX Runtime cannot load it, or Regraft did not write it."""
        self.path, self.directory, self.report, self._scratch = path, path.parent, report, scratch
        self.packed: Packed | None = None
        self.session = load_session(path, settings or EngineSettings())
        facts = read_metadata(self.session, path)
        recorded_settings = engine_settings(**facts.get("settings", {}))
        if settings is None and recorded_settings != EngineSettings():
            self.session = load_session(path, recorded_settings)
        self.inputs, self.result, self.facts = facts["inputs"], facts["result"], facts
        self.input_names = [value.name for value in self.session.get_inputs()]
        self.output_names = [value.name for value in self.session.get_outputs()]

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        """Return the network's result for arguments by position or by name.

        Raises TypeError for missing or unknown arguments, ValueError for another value of a
        constant and for tensors of other types or sizes, and RuntimeError for whatever else ONNX
        Runtime raises, as it does where the network raises.
        """
        if self.packed is not None:
            args, keywords = (), self.packed.parts(args, keywords)
        arguments = {**dict(zip(self.inputs, args, strict=False)), **keywords}
        if len(args) > len(self.inputs) or not set(self.input_names) <= set(arguments) <= set(
            self.inputs
        ):
            raise TypeError(f"the network takes {', '.join(self.inputs)}")
        for key, entry in self.inputs.items():
            if "value" in entry and key in arguments and repr(arguments[key]) != entry["value"]:
                raise ValueError(
                    f"{key} is {arguments[key]!r}; the network was split for {entry['value']}"
                )
        arrays = {key: to_numpy(arguments[key]) for key in self.input_names}
        try:
            outputs = self.session.run(None, arrays)
        except Exception as problem:
            raise describe_failure(self.inputs, arrays, problem) from problem
        return to_torch(
            rebuild_result(self.result, dict(zip(self.output_names, outputs, strict=True)))
        )

    def save(self, path: str | Path) -> None:
        """Copy the file to `path`, where any ONNX Runtime can load it."""
        shutil.copyfile(self.path, path)
