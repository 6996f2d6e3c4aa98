class Mine:
    softmax = staticmethod(lambda x, dim: x * 7)


F, _ = Mine, 0


class M(nn.Module):
    # layers

    def forward(self, x, res):
        return F.softmax(x, dim=-1)
