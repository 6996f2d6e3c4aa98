class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        r = x.add_(1)
        return F.gelu(h), r
