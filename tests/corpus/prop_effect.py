class M(nn.Module):
    # layers

    @property
    def bump(self):
        self.dense.weight.data.mul_(2)
        return 1

    def forward(self, x, res):
        h = self.dense(x)
        t = self.bump
        return F.gelu(h), t
