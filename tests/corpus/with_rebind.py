class M(nn.Module):
    # layers

    def forward(self, x, res):
        import contextlib
        h = self.dense(x)
        with contextlib.nullcontext(res) as h:
            pass
        return F.gelu(h)
