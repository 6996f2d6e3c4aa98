class M(nn.Module):
    # layers

    def forward(self, x, res):
        def g():
            x.mul_(3)
            yield 1
        h = self.dense(x)
        for _ in g():
            pass
        return F.gelu(h)
