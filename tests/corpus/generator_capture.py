class M(nn.Module):
    # layers

    def forward(self, x, res):
        g = (h * k for k in (1, 2))
        h = self.dense(x)
        y = F.gelu(h)
        return y, list(g)
