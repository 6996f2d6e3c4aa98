class M(nn.Module):
    # layers

    def forward(self, x, res):
        f = lambda: x
        x = self.dense(x)
        y = F.gelu(x)
        return y, f()
