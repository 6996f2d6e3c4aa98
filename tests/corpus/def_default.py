class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        y = F.gelu(h)
        def f(a=h):
            return a
        return y, f()
