class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dropout(x)
        self.eval()
        return self.norm(h + res)
