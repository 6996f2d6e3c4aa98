class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        f = lambda a=h: a
        y = F.gelu(h)
        return y, f()
