"""Small programs with the statements that ordinary code has around its decisions: imports, `try`,
messages, containers that change, inner functions."""

import contextlib
import logging
import warnings

import torch
from torch import nn

from split.language import Layers

WIDTHS = {"gelu": 3}
logger = logging.getLogger(__name__)


class CallableLayer(Layers):
    def forward(self, x):
        step = self.a if callable(self.a) else None
        return step(x) if x.sum() > 0 else x


class CallableFunctions(Layers):
    def forward(self, x):
        steps = (torch.relu, lambda y: y * 2, 3)
        for step in steps:
            if callable(step) and x.sum() > 0:
                x = step(x) - 0.1
        return x


class ImportsModule(Layers):
    def forward(self, x):
        import math

        return x * math.pi if x.sum() > 0 else x


class ImportsNames(Layers):
    def forward(self, x):
        from math import sqrt as root

        from torch.nn import functional

        scale = root(x.shape[1])
        if x[0, 0] > 0:
            return functional.gelu(x) / scale
        return x / scale


class TriesImport(Layers):
    def forward(self, x):
        try:
            import torch as library
        except ImportError:
            library = None
        if library is not None and x.sum() > 0:
            return library.tanh(x)
        return x


def asks_safely(value):
    try:
        import torch

        return isinstance(value, torch.nn.Parameter)
    except (ImportError, AttributeError):
        return False


class TriesReturn(Layers):
    def forward(self, x):
        if asks_safely(x):
            return x
        return self.a(x) if x.sum() > 0 else x


class TriesMissing(Layers):
    def forward(self, x):
        try:
            scale = self.config["scale"]
        except AttributeError:
            scale = 2.0
        finally:
            done = True
        return x * scale if x.sum() > 0 and done else x


class TriesElse(Layers):
    def forward(self, x):
        try:
            WIDTHS["relu"]
        except KeyError:
            width = 3
        else:
            width = 4
        return x[:, :width] if x.sum() > 0 else x[:, :1]


class Prints(Layers):
    def forward(self, x):
        if x.sum() > 0:
            print("positive", x.shape)
            return self.a(x)
        print(x)
        return x


class Warns(Layers):
    def forward(self, x):
        if x.mean() > 0.2:
            warnings.warn("a large mean", stacklevel=2)
            x = x / 2
        return self.b(x)


class Logs(Layers):
    def forward(self, x):
        logger.debug("shape %s", x.shape)
        total = x.sum().item()
        if total > 0:
            logger.warning(f"total is {total:.2f}")
            return self.a(x), total
        logger.info("total is %s", total)
        return x, total


class LogsIfAsked(Layers):
    def forward(self, x):
        if logger.isEnabledFor(logging.NOTSET + 1):
            logger.debug("mean %s", x.mean())
        return self.a(x) if x.sum() > 0 else x


class LogsInLoop(Layers):
    def forward(self, x):
        while x.abs().max() > 0.5:
            logging.info("halved")
            x = x / 2
        return x


class Autocast(Layers):
    def forward(self, x):
        with torch.autocast(device_type="cpu", enabled=False):
            return self.a(x.float()) if x.sum() > 0 else x


class AutocastOfType(Layers):
    def forward(self, x):
        device_type = x.device.type if x.device.type != "mps" else "cpu"
        with torch.autocast(device_type, enabled=False), torch.no_grad():
            y = self.b(x)
        return y if y.sum() > 0 else x


class DeletesElement(Layers):
    def forward(self, x):
        rows = [x, x * 2, x * 3]
        if x.sum() > 0:
            rows[0] = rows[0] + 1
        del rows[-1]
        return torch.cat(rows)


class DeletesFirst(Layers):
    def forward(self, x):
        sums = [1, 2, 3]
        if x.sum() > 0:
            del sums[0]
        return x * sum(sums), len(sums)


class PopsElements(Layers):
    def forward(self, x):
        stack = [self.a(x), self.b(x)]
        if x.sum() > 0:
            stack.append(x)
        last = stack.pop()
        first = stack.pop(0)
        return last + first


class PopsKeys(Layers):
    def forward(self, x):
        outputs = {"hidden": self.a(x), "extra": x, "scale": 2}
        scale = outputs.pop("scale")
        if x.sum() > 0:
            outputs["hidden"] = outputs["hidden"] * scale
        extra = outputs.pop("missing", outputs.pop("extra"))
        return outputs["hidden"] + extra


def without_cache(**options):
    options.pop("use_cache", None)
    scale = options.pop("scale", 1)
    return scale, options


class PopsOptions(Layers):
    def forward(self, x):
        scale, options = without_cache(use_cache=True, scale=3)
        if x.sum() > 0 and not options:
            return x * scale
        return x


class SetOfNumbers(Layers):
    def forward(self, x):
        skipped = {0, 2}
        for number, head in enumerate(self.heads):
            if number not in skipped and x.sum() > 0:
                return head(x)
        return self.heads[0](x)


class NonlocalCounter(Layers):
    def forward(self, x):
        count = 0

        def step(y):
            nonlocal count
            count += 1
            return self.a(y)

        x = step(x)
        if x.sum() > 0:
            x = step(x)
        return x, count


class NonlocalTensor(Layers):
    def forward(self, x):
        total = torch.zeros(6)

        def add(y):
            nonlocal total
            if y.sum() > 0:
                total = total + y.mean(0)

        for scale in (1, -1, 2):
            add(x * scale)
        return total


class Sorts(Layers):
    def forward(self, x):
        scores = [head(x).max().item() for head in self.heads]
        scores.sort()
        return x * scores[-1] if scores[0] > 0 else x * scores[0]


class SortsDescending(Layers):
    def forward(self, x):
        numbers = [3, 1, 2]
        if x.sum() > 0:
            numbers.sort(reverse=True)
        else:
            numbers.sort()
        return x * numbers[0]


class Decorated(Layers):
    @torch.no_grad()
    def forward(self, x):
        for _ in range(3):
            if x.sum() > 0:
                x = self.a(x)
        return x


class DecoratedLoop(Layers):
    @torch.inference_mode()
    def search(self, x):
        while x.norm() > 1:
            x = x * 0.7
        return x

    def forward(self, x):
        return self.b(self.search(x))


class NullContext(Layers):
    def forward(self, x):
        with contextlib.nullcontext():
            if x.sum() > 0:
                x = self.a(x)
        return x


def make_scale(factor):
    def scale(y):
        return y * factor

    return scale


class ReturnedFunction(Layers):
    def forward(self, x):
        scale = make_scale(x.abs().max())
        if x.sum() > 0:
            return scale(x)
        return scale(self.a(x))


def join(*functions):
    def joined(y):
        for function in functions:
            y = function(y)
        return y

    return joined


class ReturnedChain(Layers):
    def forward(self, x):
        steps = join(make_scale(2), make_scale(x.mean()), torch.tanh)
        if x.sum() > 0:
            steps = join(steps, self.a)
            return steps(x)
        return steps(x)


class StarredTensors(Layers):
    def forward(self, x):
        low, high = x[:, :3], x[:, 3:]
        parts = (low, high) if x.sum() > 0 else (high, low)
        return torch.maximum(*parts) + torch.add(*x.chunk(2, dim=1))


class ChangesDictionary(Layers):
    def forward(self, x):
        cache = {}
        for number, head in enumerate(self.heads):
            cache[f"head_{number}"] = head(x)
        if x.sum() > 0:
            cache["head_0"] = cache["head_0"] * 2
        cache.update({"head_1": x[:, :2]})
        del cache["head_2"]
        return sum(cache.values()), list(cache)


class Global(Layers):
    def forward(self, x):
        if isinstance(self.heads, (list, nn.ModuleList)) and len(x.shape) == 2:
            x = x + 1
        return self.a(x) if x.sum() > 6 else x


class LengthOfShape(Layers):
    def forward(self, x):
        if len(x.shape) > 2:
            return x * 2
        return self.a(x) if x.sum() > 0 else x


class PrintsOften(Layers):
    def forward(self, x):
        for number, head in enumerate(self.heads):
            y = head(x)
            print(f"head {number}: {y.max().item()}")
            if y.max() > 0.5:
                break
        return y


def make_counter():
    count = 0

    def increase(by=1):
        nonlocal count
        count += by
        return count

    return increase


class SharedCounter(Layers):
    def forward(self, x):
        first, second = make_counter(), make_counter()
        first()
        if x.sum() > 0:
            first(2)
            second()
        if x[0, 0] > 0:
            return x * first(), second()
        return x, first() + second()


class CounterInLoop(Layers):
    def forward(self, x):
        increase = make_counter()
        while x.abs().max() > 0.5:
            x = x * 0.6
            if x.sum() > 0:
                increase()
        return x, increase()


class NonlocalInLoop(Layers):
    def forward(self, x):
        best = x.sum()

        def look(y):
            nonlocal best
            if y.sum() > best + 0.5:
                best = y.sum()

        for row in x.tolist():
            look(torch.tensor(row))
        y = x
        while y.abs().max() > 1:
            y = y * -0.7
            look(y)
        return best


class CapturedList(Layers):
    def forward(self, x):
        rows = []

        def keep(y):
            rows.append(y)
            return len(rows)

        for head in self.heads:
            if keep(head(x)) > 1 and x[0, len(rows)] > 0:
                break
        return torch.cat(rows), len(rows)


class ChangedInPlace(Layers):
    def forward(self, x):
        y = x.clone()
        scale = make_scale(y)
        if x.sum() > 0:
            y += 1
        return scale(x)


class LateVariable(Layers):
    def forward(self, x):
        factor = 1

        def scale(y):
            return y * factor

        if x.sum() > 0:
            factor = 2
        y = scale(x)
        factor = 3
        return y + scale(x)


class SortsThenPops(Layers):
    def forward(self, x):
        sums = x.sum(1).tolist()
        sums.sort(reverse=True)
        total = 0.0
        while sums and total < 3:
            total += abs(sums.pop()) + 1
        return x * total, sums


class TriesKinds(Layers):
    def forward(self, x):
        try:
            kind = self.heads.kind
        except (AttributeError, KeyError) as error:
            kind = type(error).__name__
        if kind == "AttributeError" and x.sum() > 0:
            return self.a(x), kind
        return x, kind


class LogsValues(Layers):
    def forward(self, x):
        seen = [1, 2]
        logger.info("popped %d of %s", seen.pop(), x)
        if x.sum() > 0:
            print(f"values {x} and {len(seen):>3}", flush=True)
        return x * seen[-1], len(seen)


def make_pair(y):
    return (lambda z: z + y, 1)


class ReturnedPair(Layers):
    def forward(self, x):
        return make_pair(x)[0](x) if x.sum() > 0 else x


class DecidesBySize(nn.Module):
    """Not a subclass of Layers: no example of the tests takes a side."""

    def forward(self, x):
        if x.shape[0] > 7:
            return x * 3
        return x * 2 if x.sum() > 0 else x


class DecidesByFound(nn.Module):
    """Values decide the size that is compared."""

    def forward(self, x):
        rows = x[x.sum(1) > 0]
        return x * 3 if rows.shape[0] > 7 else x * 2


def scale_of(layer):
    try:
        scale = layer.scale
    except AttributeError:
        return 2.0
    else:
        scale = scale + 1
    return scale


class TriesReturnOfHandler(Layers):
    scale = 3

    def forward(self, x):
        first, second = scale_of(self.a), scale_of(self)
        return x * first if x.sum() > 0 else x * second * 3


def name_of(size):
    return ("large" if size > 4 else "small"), torch.ones(size), size // 4


class TextBesideTensors(Layers):
    ROWS = (2, 3, 6, 8)

    def forward(self, x):
        text, ones, quarters = name_of(x.shape[0])
        if text == "large":
            x = x * 2
        return x * quarters + ones[:, None] if x.sum() > 0 else x


def describe(y):
    return y * 2, y.shape[0] > 4, y.shape[0] // 4


class TruthBesideTensors(Layers):
    ROWS = (2, 3, 6, 8)

    def forward(self, x):
        doubled, is_long, quarters = describe(x)
        if x.sum() > 0:
            return doubled + quarters if is_long else x
        return doubled - quarters


def find_scale(layer):
    return layer.scale


class TriesCalls(Layers):
    def forward(self, x):
        if x.sum() > 0:
            x = x + 1
        try:
            scale = find_scale(self.a)
        except AttributeError:
            scale = 2
        return x * scale if x[0, 0] > 0 else x


class TruthOfTuples(Layers):
    def forward(self, x):
        pair, nothing = (x, x * 2), ()
        y = pair[1] if pair else x
        if not nothing and x.sum() > 0:
            y = y + 1
        return y
