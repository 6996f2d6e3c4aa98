class M(nn.Module):
    # layers
    def forward(self, x, f=True):
        h = x
        if f:
            h = self.dense(x)
        h = self.act(h)
        return h
#CASE: (r(2,4,8),)
#CASE: (r(2,4,8),False)
