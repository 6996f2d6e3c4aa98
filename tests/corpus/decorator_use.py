class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        y = F.gelu(h)
        def deco(a):
            return lambda f: a
        @deco(h)
        def k():
            pass
        return y, k
