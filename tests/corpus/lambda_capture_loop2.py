class M(nn.Module):
    # layers

    def forward(self, x, res):
        fs = []
        for i in range(2):
            fs.append(lambda: h)
            h = self.dense(x)
            x = F.gelu(h)
        return [f() for f in fs]
