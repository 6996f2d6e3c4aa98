class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dropout(x
                         + res)
        return self.norm(h + res)
