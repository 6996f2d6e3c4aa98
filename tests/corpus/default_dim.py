class M(nn.Module):
    # layers

    def sm(self, x, dim=-1):
        return F.softmax(x, dim=dim)

    def forward(self, x, res):
        return self.sm(x, 0)
