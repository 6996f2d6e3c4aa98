def keep(x, acc=[]):
    acc.append(1)
    return x * len(acc)
def ident(x, n=len("ab")):
    return x * n
class M(nn.Module):
    # layers
    def forward(self, x, res):
        a = self.norm(keep(self.drop(x)) + res)
        b = self.norm(ident(self.drop(x)) + res)
        return a, b, self.norm(self.drop(keep(x)) + keep(res))
#CASE: (r(2,4,8),r(2,4,8))
