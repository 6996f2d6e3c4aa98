def ident(x):
    return x
def _noisy(f):
    def g(x):
        print("hi")
        return f(x) * 2
    return g
ident = _noisy(ident)
class M(nn.Module):
    # layers
    def forward(self, x, res):
        return self.norm(ident(self.drop(x)) + res)
#CASE: (r(2,4,8),r(2,4,8))
