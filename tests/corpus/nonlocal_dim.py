class M(nn.Module):
    # layers

    def forward(self, x, res):
        dim = -1
        def change():
            nonlocal dim
            dim = 0
        change()
        return F.softmax(x, dim=dim)
