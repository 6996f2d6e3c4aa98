class A(nn.Module):
    # layers
    def ident(self, x):
        return x
    def forward(self, x, res):
        return x
class C(A):
    def ident(self, x):
        return x * 3
class B(A):
    pass
class M(B, C):
    def forward(self, x, res):
        return self.norm(self.ident(self.drop(x)) + res)
#CASE: (r(2,4,8),r(2,4,8))
