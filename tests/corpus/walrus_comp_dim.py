class M(nn.Module):
    # layers

    def forward(self, x, res):
        dim = -1
        any((dim := d) > 5 for d in (1, 0))
        return F.softmax(x, dim=dim)
