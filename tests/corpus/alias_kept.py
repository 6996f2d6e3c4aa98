class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dropout(self.dense(x))
        x = h.shape
        return self.norm(h + res)
