class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        try:
            raise ValueError
        except ValueError as h:
            pass
        try:
            y = F.gelu(h)
        except UnboundLocalError:
            y = None
        return y
