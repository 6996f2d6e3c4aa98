class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = x
        try:
            h = res * 2
            return h
        finally:
            self.out = self.norm(self.dropout(h) + x)
            print(self.out)
