class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dense(x)
        y = F.gelu(h)
        class K(type("B", (), {"v": h})):
            w = h
        return y, K.v, K.w
