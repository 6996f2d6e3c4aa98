class M(nn.Module):
    # layers

    def forward(self, x, res):
        self.h = x
        setattr(self, "h", x ** 2)
        return self.norm(self.dropout(self.h) + res)
