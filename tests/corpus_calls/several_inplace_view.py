class M(nn.Module):
    # layers
    def forward(self, x):
        y = x.view(-1)
        q = self.q(x)
        y += 1
        k = self.k(x)
        y.mul_(2)
        v = self.v(x)
        return q, k, v
