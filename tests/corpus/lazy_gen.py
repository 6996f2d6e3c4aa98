class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        g = (F.gelu(h) + r for r in (res, res))
        x = res * 5
        return list(g)
