class M(nn.Module):
    # layers
    def ident(self, x):
        return x
    def forward(self, x, res):
        return self.norm(self.ident(self.drop(x)) + res)
M.ident = lambda self, x: x * 3
#CASE: (r(2,4,8),r(2,4,8))
