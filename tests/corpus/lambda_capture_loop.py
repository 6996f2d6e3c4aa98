class M(nn.Module):
    # layers

    def forward(self, x, res):
        fs = []
        for i in range(2):
            fs.append(lambda: x)
            x = self.dense(x)
            x = F.gelu(x)
        return [f() for f in fs]
