class M(nn.Module):
    # layers
    def forward(self, x, f=True):
        if f:
            h = self.dense(x)
        else:
            h = self.q(x) * 2
        h = self.act(h)
        return h
#CASE: (r(2,4,8),)
#CASE: (r(2,4,8),False)
