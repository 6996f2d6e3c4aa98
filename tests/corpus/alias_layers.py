class M(nn.Module):
    # layers

    def forward(self, x, res):
        a = self.dropout
        a = self.act
        return a(self.dense(x))
