class M(nn.Module):
    # layers

    def forward(self, x, res):
        dim = -1
        class K:
            nonlocal dim
            dim = 0
        return F.softmax(x, dim=dim)
