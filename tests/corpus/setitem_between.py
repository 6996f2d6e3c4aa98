class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        x[0] = 9
        return F.gelu(h)
