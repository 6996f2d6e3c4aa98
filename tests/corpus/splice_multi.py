class M(nn.Module):
    # layers

    def forward(self, x, res):
        y = self.norm(self.dropout(x
            + 1) + (res
            * 2))
        return y
