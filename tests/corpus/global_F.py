class Mine:
    softmax = staticmethod(lambda x, dim: x * 7)


def patch():
    global F
    F = Mine


patch()


class M(nn.Module):
    # layers

    def forward(self, x, res):
        return F.softmax(x, dim=-1)
