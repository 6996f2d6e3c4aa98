class M(nn.Module):
    # layers

    def forward(self, x, res):
        a, b = self.dense(x), res
        a, b = b, a
        return F.gelu(a), F.gelu(b)
