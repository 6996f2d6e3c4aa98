class M(nn.Module):
    # layers

    def forward(self, x, res):
        y = self.norm(self.dropout((yield x)) + res)
