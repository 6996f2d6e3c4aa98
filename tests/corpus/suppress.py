class M(nn.Module):
    # layers

    def forward(self, x, res):
        import contextlib
        with contextlib.suppress(RuntimeError):
            h = self.dense(x)
            y = F.gelu(h)
            raise RuntimeError
        return y, h
