class M(nn.Module):
    # layers

    def g(self, x, res):
        return self.norm(self.dropout(x) + res)

    def forward(self, x, res):
        self.dropout = nn.Identity()
        return self.g(x, res)
