class M(nn.Module):
    # layers

    def forward(self, x, res):
        dim = -1
        match {"a": 1}:
            case {"a": 1, **dim}:
                dim = 0
        return F.softmax(x, dim=dim)
