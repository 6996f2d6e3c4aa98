class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        y = F.gelu(h)
        i = [0, 1][: int(h.sum() > -99)]
        return y, i
