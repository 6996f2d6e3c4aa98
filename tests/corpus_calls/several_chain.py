class M(nn.Module):
    # layers
    def forward(self, x, f=False):
        a = f and self.q(x), self.k(x), self.v(x)
        b = self.q(x).sum() < self.k(x).sum() < self.v(x).sum()
        c = [self.q(x), self.k(x), self.v(x) if f else 0]
        d = {"q": self.q(x), "k": self.k(x), "v": self.v(x)}
        return a, b, c, d
#CASE: (r(2,4,8),)
#CASE: (r(2,4,8),True)
