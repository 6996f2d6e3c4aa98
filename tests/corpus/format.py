class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        y = F.gelu(h)
        return y, f"{y.sum():{'.2f' if h.sum() > 0 else '.1f'}}"
