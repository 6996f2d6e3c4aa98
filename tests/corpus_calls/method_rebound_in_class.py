def noisy(f):
    def g(self, x):
        print("hi")
        return f(self, x) * 2
    return g
class M(nn.Module):
    # layers
    def ident(self, x):
        return x
    ident = noisy(ident)
    def forward(self, x, res):
        return self.norm(self.ident(self.drop(x)) + res)
#CASE: (r(2,4,8),r(2,4,8))
