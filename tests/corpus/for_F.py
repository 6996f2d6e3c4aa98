class Mine:
    softmax = staticmethod(lambda x, dim: x * 7)


for F in (F, Mine):
    pass


class M(nn.Module):
    # layers

    def forward(self, x, res):
        return F.softmax(x, dim=-1)
