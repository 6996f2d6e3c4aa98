class M(nn.Module):
    # layers
    def forward(self, x, n=2):
        for i in range(n):
            q = self.q(x)
            for j in range(3):
                if j == i:
                    break
            k = self.k(x)
            x = x + 1 if i else x
            v = self.v(x)
            q, k, v = self.q(x), self.k(x), self.v(x)
        return q, k, v
