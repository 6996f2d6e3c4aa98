class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = x
        for i in range(3):
            h = self.dense(x)
            if i == 1:
                break
            y = F.gelu(h)
        else:
            h = res
        return y, h
