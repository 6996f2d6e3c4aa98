class M(nn.Module):
    # layers

    def forward(self, x, res):
        def f():
            return h
        h = self.dense(x)
        y = F.gelu(h)
        return y, f()
