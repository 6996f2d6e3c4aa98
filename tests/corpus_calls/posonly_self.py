class M(nn.Module):
    # layers
    def on(self, /):
        return self.flag
    def forward(self, x, res):
        h = self.drop(x)
        if self.on():
            h = h * 2
        return self.norm(h + res)
#CASE: (r(2,4,8),r(2,4,8))
