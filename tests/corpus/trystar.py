class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        y = F.gelu(h)
        try:
            y = y + h
        except* ValueError:
            pass
        return y
