if torch.__version__ < "0":
    def ident(x):
        return x * 2
else:
    def ident(x):
        return x * 3
if torch.__version__ < "0":
    def ident(x):
        return x
class M(nn.Module):
    # layers
    def forward(self, x, res):
        return self.norm(ident(self.drop(x)) + res)
#CASE: (r(2,4,8),r(2,4,8))
