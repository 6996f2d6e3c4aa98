"""The text of the host for batches: each sample runs the program up to its next region.

The host runs a region on all samples that wait for it.
"""

from __future__ import annotations

import re

from regraft.splitting.compiling.compilers import Compiler
from regraft.splitting.emitting.host_text import Writer, host_head, host_module
from regraft.splitting.network import Program
from regraft.splitting.program.unused_names import unused_name

LOAD = """        self.names = [entry["inputs"] for entry in manifest["regions"]]
        self.outputs = [entry["outputs"] for entry in manifest["regions"]]
        self.parts = [
            {key: self.part(entry[key]) for key in ("together", "each") if key in entry}
            for entry in manifest["regions"]
        ]
"""

RUN = '''    def part(self, entry):
        """Return the function that runs a part of a region, and the names of its variables.

        These are a dictionary of the names that it reads, by input, and a list of those that it computes.
        """
        run, inputs = self.region(entry)
        reads = {key: entry["inputs"][position]["name"] for key, position in inputs}
        return run, reads, [output["name"] for output in entry["outputs"]]

    def run_region(self, number, samples):
        """Return the outputs of a region for each sample. samples: the variables of each sample, by name."""
        parts = self.parts[number]
        if "together" in parts:
            self.run_together(parts["together"], samples)
        if "each" in parts:
            run, reads, computes = parts["each"]
            for sample in samples:
                values = {key: numpy.asarray(sample[name]) for key, name in reads.items()}
                sample.update(zip(computes, run(None, values)))
        return [[sample[name] for name in self.outputs[number]] for sample in samples]

    def run_together(self, part, samples):
        """Run a part on all samples of equal sizes at once, and add what it computes to their variables."""
        run, reads, computes = part
        groups = {}
        for sample in samples:
            sizes = tuple(sample[name].shape for name in reads.values())
            groups.setdefault(sizes, []).append(sample)
        for group in groups.values():
            values = {key: numpy.concatenate([sample[name] for sample in group]) for key, name in reads.items()}
            for name, rows in zip(computes, run(None, values)):
                if len(rows) != len(group):
                    raise RuntimeError("a sub-network does not give one result for each sample")
                for row, sample in enumerate(group):
                    sample[name] = rows[row : row + 1]

    def count_samples(self, *tensors):
        """Return the number of samples; raise ValueError where the tensors hold different numbers."""
        (count, *other_counts) = {len(tensor) for tensor in tensors}
        if other_counts:
            raise ValueError("the inputs hold different numbers of samples")
        return count

    def run_samples(self, samples):
        """Run the samples' programs to their ends, and return their results.

        A program stops at each region with its number and inputs. The earliest region that a program waits for
        runs next, on all samples that wait for it.
        """
        results, requests = [None] * len(samples), {}

        def resume(position, outputs):
            """Run one program on to its next region, which becomes its request, or to its end."""
            try:
                requests[position] = samples[position].send(outputs)
            except StopIteration as end:
                results[position] = end.value

        for position in range(len(samples)):
            resume(position, None)
        while requests:
            number = min(request[0] for request in requests.values())
            waiting = [position for position, request in requests.items() if request[0] == number]
            inputs = [dict(zip(self.names[number], requests.pop(position)[1:])) for position in waiting]
            for position, outputs in zip(waiting, self.run_region(number, inputs)):
                resume(position, outputs)
        self.trace = [side for trace in self.traces for side in trace]
        return results

'''  # noqa: E501

FORWARD = '''    def forward({header}):
        """Return the network's result for each sample, in their order."""
        self.check({given})
        self.traces = []  # the sides that each sample took
        return self.run_samples([self.sample({slices}) for {row} in range(self.count_samples({tensors}))])

    def sample({header}):
        {trace} = []
        self.traces.append({trace})
        yield from ()
'''  # noqa: E501


def batched_source(program: Program, compiler: Compiler, has_islands: bool) -> str:
    """Return the text of host.py for batches, whose `sample` is a generator for the program of one
    sample: it yields the number and inputs of each region, and receives the outputs.

    has_islands: whether torch runs some of the sub-networks; the text then imports torch.
    """
    tensors = program.network.tensor_inputs
    body = "\n".join(Writer("trace", "yield ({},)").write_steps(program.steps, 2))
    occupied = {*program.inputs, *re.findall(r"\w+", body.replace("trace.append(", ""))}
    row, trace = unused_name("row", occupied), unused_name("trace", occupied)
    slices = [f"{key}[{row} : {row} + 1]" if key in tensors else key for key in program.inputs]
    forward = FORWARD.format(
        header=", ".join(["self", *program.parameters]),
        given=", ".join(f"{key}={key}" for key in program.inputs),
        tensors=", ".join(tensors),
        slices=", ".join(slices),
        row=row,
        trace=trace,
    )
    body = "\n".join(Writer(trace, "yield ({},)").write_steps(program.steps, 2))
    return host_module(
        host_head(program, LOAD, has_islands, compiler),
        RUN + forward + body + "\n",
    )
