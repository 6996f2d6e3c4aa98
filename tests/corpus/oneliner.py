class M(nn.Module):
    # layers

    def forward(self, x, res):
        if self.flag: y = self.norm(self.dropout(x) + res)
        else: y = x
        if self.flag: y = self.act(self.dense(y)); y = y + 1
        return y
