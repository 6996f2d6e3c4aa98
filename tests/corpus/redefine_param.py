class M(nn.Module):
    # layers

    def forward(self, x, res):
        def inner(x, res=res):
            x = self.dropout(x)
            return self.norm(x + res)
        return inner(x)
