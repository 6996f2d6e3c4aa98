class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        n = 0
        while F.gelu(h).sum() < 1 + n and n < 5:
            x.mul_(2)
            n += 1
        return n, x
