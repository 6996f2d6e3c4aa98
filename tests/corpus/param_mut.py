class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        self.dense.weight.data = self.dense.weight.data * 2
        y = F.gelu(h)
        return y
