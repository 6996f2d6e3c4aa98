class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        """about h"""
        y = F.gelu(h)
        return y
