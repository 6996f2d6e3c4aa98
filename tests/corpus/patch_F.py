import types
F = types.SimpleNamespace(**vars(F))
F.softmax = lambda x, dim: x * 7


class M(nn.Module):
    # layers

    def forward(self, x, res):
        return F.softmax(x, dim=-1)
