H = torch.ones(2, 4)


def upd():
    global H
    H = torch.arange(8.).reshape(2, 4) ** 2


class M(nn.Module):
    # layers

    def forward(self, x, res):
        global G
        G = x
        h = H
        upd()
        return self.norm(self.dropout(H) + h)
