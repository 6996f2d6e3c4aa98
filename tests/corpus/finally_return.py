class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = x
        try:
            h = self.dense(x)
            y = F.gelu(h)
            return y
        finally:
            self.last = h
            print("finally", h.sum().item())
