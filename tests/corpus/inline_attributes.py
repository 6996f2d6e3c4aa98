class M(nn.Module):
    # layers

    def step(self, x):
        self.h = self.h * 2 + x
        return self.h

    def maybe(self, x):
        if x.sum() > 0:
            self.h = x
            return self.dropout(x)
        elif x.sum() < -1:
            return x
        print("neither")

    def forward(self, x, res):
        h = self.h
        y = self.norm(self.dropout(self.step(x)) + h)
        z = self.norm(self.dropout(self.h) + self.step(res))
        t = self.maybe(x)
        self.h = h
        return y, z, self.norm(t + res) if t is not None else 0, self.norm(self.dropout(self.h) + self.h)
