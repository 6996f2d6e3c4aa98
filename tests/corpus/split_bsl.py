class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = \
            self.dropout(x)
        y = self.norm(h \
            + res)
        return y
