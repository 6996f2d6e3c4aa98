class M(nn.Module):
    # layers
    def forward(self, x, f=True, g=None):
        if f:
            h = self.dense(x)
        elif g is None:
            return x
        else:
            raise KeyError(g)
        h = F.gelu(h)
        return h
#CASE: (r(2,4,8),)
#CASE: (r(2,4,8),False)
#CASE: (r(2,4,8),False,1)
