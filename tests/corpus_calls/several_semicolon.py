class M(nn.Module):
    # layers
    def forward(self, x):
        q = self.q(x); k = self.k(x)
        v = self.v(x)
        n = 1; q2 = self.q(x)
        k2 = self.k(x) # key
        # value
        v2: torch.Tensor = self.v(
            x)
        return q, k, v, q2, k2, v2
