class M(nn.Module):
    # layers

    def forward(self, x, res):
        i = 0
        while True:
            h = self.dense(x)
            y = F.gelu(h)
            i += 1
            if i > 2:
                break
        return y, h
