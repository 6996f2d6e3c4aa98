class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = x
        for i in range(3):
            if i == 1:
                h = self.dense(res)
                y = F.gelu(h)
                break
        return y, h
