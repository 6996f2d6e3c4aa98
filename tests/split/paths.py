"""Variables that some paths assign, and the ways out of loops."""

import torch

from split.language import Layers


class Correlated(Layers):
    """What one side assigns is read where the same decision was taken (Longformer)."""

    def scaled(self, x, positive):
        if positive:
            scale, pair, note = x.abs().mean(), (x + 1, 3), 5
        y = self.a(x)
        if positive:
            y = y * scale + pair[0] * pair[1] * note
        return y

    def forward(self, x):
        positive = (x.sum() > 0).item()
        if positive:
            sign = x.sign()
        x = self.scaled(x, positive)
        x = self.scaled(x, positive)
        return x + sign if positive else x


class Rare(Layers):
    """A number of the host decides in a function that reads no tensor's value, for inputs that are
    rare."""

    def scaled(self, x, count, share):
        x = x * 2 if count > 3 else self.a(x)
        return x + 1 if share > 0.9 else x

    def forward(self, x):
        count, share = int((x > 1).sum()), (x > 0).float().mean().item()
        return self.scaled(x, count, share)

    def calls(self):
        return [(torch.randn(1, 6),) for _ in range(6)] + [
            (torch.full((1, 6), value),) for value in (0.5, 2.0)
        ]


class Undefined(Layers):
    """Where the other side is taken, reading it raises."""

    def forward(self, x):
        if x.sum() > -1:
            y = self.a(x)
        if x[0, 0] > 5:
            return y * 2
        return x

    def calls(self):
        return [(torch.full((1, 6), value),) for value in (-1.0, 1.0, 9.0)]


class HeldApart(Layers):
    """A view that one side made, and that is not read again, does not keep the tensor from being
    changed in place."""

    def forward(self, x):
        x = x * 2
        if x.sum() > 0:
            row = x[0]
            x = x + row
        else:
            other = x[:, 1]
            other = other + 1
        x += 1
        x[0, 0] = 0
        return x


class AfterLoop(Layers):
    """What a loop assigns first is read after it."""

    def forward(self, x):
        steps = 0
        while True:
            y = self.a(x)
            steps += 1
            if y.sum() > 1 or steps > 4:
                reason = "sum" if y.sum() > 1 else "steps"
                break
            x = x + 0.5
            last = y
        halved = 0
        while x.abs().max() > 1:
            x = x / 2
            half, halved = (x, halved), halved + 1
        if steps > 1:
            y = y + last
        return y, half[0] * half[1] if halved else x, steps, reason == "sum"

    def calls(self):
        return [(torch.full((1, 6), value),) for value in (-1.0, 0.1, 3.0)]


class LeftShorter(Layers):
    """A side that leaves the loop changes a tensor's size and a number."""

    def forward(self, x):
        found = 0
        while x.sum() < 4:
            x = x + 0.5
            if x[0, 0] > 2:
                x, found = x[:, :3], 7
                break
        return x, found, x.shape[1]

    def calls(self):
        return [
            (torch.full((1, 6), -1.0),),
            (torch.tensor([[3.0, -1, -1, -1, -1, -1]]),),
            (torch.ones(1, 6),),
        ]


class WhileElse(Layers):
    def forward(self, x):
        count = 0
        while x.sum() < 3:
            x = x + 0.7
            count += 1
            if x[0, 0] > 1:
                break
        else:
            x, count = x * 10, count + 100
        return x, count


class ElseLeaves(Layers):
    """The else of an inner loop leaves the loop around it, and holds a loop that a return
    leaves."""

    UNSEEN = "raise"

    def settled(self, x):
        while x.sum() > -9:
            x = x - 1
            if x[0, 1] < -2:
                break
        else:
            for _ in range(2):
                if x[0, 0] < -1:
                    return x
                x = x - 0.5
            return x + 1
        return x * 2

    def forward(self, x):
        rounds = 0
        for _ in range(3):
            tries = 0
            while tries < 3:
                tries += 1
                x = torch.tanh(self.a(x)) + 0.3
                if x[0, 0] > 0.5:
                    break
            else:
                if x[0, 1] > 0.5:
                    continue
                break
            rounds += tries
        else:
            rounds = -rounds
        return self.settled(x * 3), rounds

    def calls(self):
        return [(torch.randn(1, 6) * 3,) for _ in range(60)]


class ElseOfItems(Layers):
    def forward(self, x):
        for place in (x[0] > 0).nonzero():
            if x[0, place] > 1:
                break
            x = x * 0.9
        else:
            x = x + 10
        return x


class Counted(Layers):
    """The first call runs its loops not once."""

    def forward(self, x, steps):
        for number in range(int(steps["count"])):
            x = torch.tanh(self.a(x)) + number
        for number in range(steps["count"].item(), 4):
            x = x * 0.5 - number
        return x

    def calls(self):
        return [(torch.randn(1, 6), {"count": torch.tensor(number)}) for number in (0, 4, 2, 1)]


class Given(Layers):
    """A list whose length is known is taken apart for a call."""

    def first(self, x, *others):
        return x + len(others) if others[0].sum() > 0 else x

    def forward(self, x):
        several = [x]
        for layer in (self.a, self.b):
            several.append(layer(several[-1]))
        return self.first(*several) - self.first(*several[1:])


class Sought(Layers):
    """Returns inside loops of functions that forward calls."""

    UNSEEN = "raise"

    def first(self, x):
        for head in self.heads:
            y = head(x)
            if y.sum() > 0.3:
                return y
            if y.sum() > 0.2:
                continue
            x = x * 1.5
        return x[:, :2]

    def nested(self, x):
        rounds = 0
        while rounds < 3:
            for head in self.heads:
                if head(x).sum() > 0.5:
                    return x * 2, rounds
            rounds += 1
            x = x + 0.3
        return x, -1

    def found(self, x, loop_result=1):
        for number in range(3):
            if x[0, number] > 1:
                return number
        if x.sum() > 0:
            return 10
        loop_result += 1
        return loop_result

    def forward(self, x):
        y = self.first(x)
        x, rounds = self.nested(x)
        return y, x, rounds, self.found(x)

    def calls(self):
        return [(torch.full((1, 6), value),) for value in (-1.0, 0.1, 3.0)]


class Frozen(Layers):
    """What Python computes of a number is computed for each input, also where no example shows that
    it differs."""

    def flagged(self, x, flag):
        return x * 2 if flag is True else x + 1

    def forward(self, x):
        n = int(x[0, 0])
        y = self.flagged(x, bool(x[0, 1] > 40))
        return y * max(n, 40), x * float(n > 40), x + [1, 2, 3][n % 3], x * len(str(n))

    def calls(self):
        return [(torch.full((1, 6), float(value)),) for value in (0, 1, 2, 41, -12)]


class Endless(Layers):
    """A helper that only a return ends."""

    def until(self, x):
        while True:
            if x.sum() > 5:
                return x * 2
            x = x + 1

    def forward(self, x):
        return self.until(x)


class Asked(Layers):
    """A variable that some paths assign is read where a truth before it holds."""

    def forward(self, x):
        ok = (x.sum() > 0).item()
        if ok:
            low = x.min()
        if ok and (x[0, 0] > low).item():
            x = x * 2
        return x
