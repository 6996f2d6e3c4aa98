class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dropout(x)
        [h := t for t in (res, res * 3)]
        y = self.norm(h + res)
        return y
