def check(x):
    if x.shape[0] != 2:
        raise ValueError("bad")
    return x
def check2(x, n):
    assert n == 2
    return x
class M(nn.Module):
    # layers
    def forward(self, x, res, n=2):
        a = self.norm(self.drop(x) + check(res))
        b = self.norm(self.drop(check2(x, n)) + res)
        c = self.norm(check2(self.drop(x), n) + res)
        return a, b, c
#CASE: (r(2,4,8),r(2,4,8))
#CASE: (r(3,4,8),r(3,4,8))
#CASE: (r(2,4,8),r(2,4,8),3)
