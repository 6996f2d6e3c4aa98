class M(nn.Module):
    # layers

    def forward(self, x, res):
        def g():
            x.mul_(3)
            yield 1
        it = g()
        h = self.dense(x)
        n = list(it)
        return F.gelu(h)
