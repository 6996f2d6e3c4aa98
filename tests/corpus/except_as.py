class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        y = F.gelu(h)
        try:
            raise ValueError
        except ValueError as h:
            pass
        return y
