class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = x
        try:
            h = self.dense(x)
            y = F.gelu(h)
            if self.flag:
                raise RuntimeError
        except RuntimeError:
            y = h
        return y
