class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        n = 0
        while F.gelu(h).abs().sum() < 50 and n < 5:
            x.mul_(3)
            n += 1
        return n
