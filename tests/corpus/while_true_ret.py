class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = x
        while True:
            try:
                h = self.dense(x)
                y = F.gelu(h)
                break
            finally:
                z = h
        return y, z
