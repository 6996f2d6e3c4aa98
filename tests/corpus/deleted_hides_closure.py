class M(nn.Module):
    # layers

    def forward(self, x, res):
        def f(): return x
        g = f
        x = self.dense(x)
        return F.gelu(x)
