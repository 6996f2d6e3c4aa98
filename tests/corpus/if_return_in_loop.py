class M(nn.Module):
    # layers

    def forward(self, x, res):
        for i in range(3):
            h = self.dense(x)
            if i == 1:
                y = F.gelu(h)
                return y
        return h
