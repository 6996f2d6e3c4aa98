"""The text of the host for batches: each sample runs the program up to its next region.

The host runs a region on all samples that wait for it.
"""

from __future__ import annotations

from regraft.splitting.compiling.compilers import Compiler
from regraft.splitting.emitting.host import Writer, host_head, host_module
from regraft.splitting.program.residual import Step
from regraft.splitting.program.results import Classes

LOAD = """        self.names = [entry["inputs"] for entry in manifest["regions"]]
        self.outputs = [entry["outputs"] for entry in manifest["regions"]]
        self.parts = [
            {key: self.part(entry[key]) for key in ("together", "each") if key in entry}
            for entry in manifest["regions"]
        ]
"""

TOGETHER = """    def part(self, entry):
        \"\"\"What runs a sub-network, by what name it gets what, and the names of what it gives.\"\"\"
        run, inputs = self.region(entry)
        takes = {key: entry["inputs"][place]["name"] for key, place in inputs}
        return run, takes, [one["name"] for one in entry["outputs"]]

    def together(self, number, given):
        \"\"\"A region on what several samples give it: together where sizes are equal, the rest one by one.\"\"\"
        parts = self.parts[number]
        if "together" in parts:
            run, takes, gives = parts["together"]
            alike = {}
            for one in given:
                alike.setdefault(tuple(one[name].shape for name in takes.values()), []).append(one)
            for several in alike.values():
                values = {key: numpy.concatenate([one[name] for one in several]) for key, name in takes.items()}
                for name, column in zip(gives, run(None, values)):
                    if len(column) != len(several):
                        raise RuntimeError("a sub-network does not give one result for each sample")
                    for row, one in enumerate(several):
                        one[name] = column[row : row + 1]
        if "each" in parts:
            run, takes, gives = parts["each"]
            for one in given:
                values = {key: numpy.asarray(one[name]) for key, name in takes.items()}
                one.update(zip(gives, run(None, values)))
        return [[one[key] for key in self.outputs[number]] for one in given]

"""  # noqa: E501

FORWARD = """    def forward({header}):
        \"\"\"One result for each sample, in their order.\"\"\"
        self.check({given})
        counts = {{len(one) for one in ({tensors},)}}
        if len(counts) > 1:
            raise ValueError("the inputs hold different numbers of samples")
        self.traces = []  # the sides that each sample took
        samples = [self.sample({slices}) for n in range(*counts)]
        results, asked = [None] * len(samples), {{}}

        def go_on(place, value):
            try:
                asked[place] = samples[place].send(value)
            except StopIteration as end:
                results[place] = end.value

        for place in range(len(samples)):
            go_on(place, None)
        while asked:
            number = min(one for one, *_ in asked.values())  # those behind catch up with the others
            places = [place for place, (one, *_) in asked.items() if one == number]
            given = [dict(zip(self.names[number], asked.pop(place)[1:])) for place in places]
            for place, made in zip(places, self.together(number, given)):
                go_on(place, made)
        self.trace = [side for one in self.traces for side in one]
        return results

    def sample({header}):
        trace = []
        self.traces.append(trace)
        yield from ()
"""


def batched_source(
    name: str,
    parameters: list[str],
    names: list[str],
    tensors: list[str],
    steps: list[Step],
    islands: bool,
    compiler: Compiler,
    classes: Classes,
) -> str:
    """Return the text of host.py for batches.

    name: the network's class. parameters: the parameters of its forward as text. names: the
    parameters' names. tensors: the names of those that hold samples.
    """
    forward = FORWARD.format(
        header=", ".join(["self", *parameters]),
        given=", ".join(f"{key}={key}" for key in names),
        tensors=", ".join(tensors),
        slices=", ".join(f"{key}[n : n + 1]" if key in tensors else key for key in names),
    )
    body = Writer("trace", "yield ({},)").write_steps(steps, 2)
    return host_module(
        host_head(name, LOAD, islands, compiler, classes),
        TOGETHER + forward + "\n".join(body) + "\n",
    )
