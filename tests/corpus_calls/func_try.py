try:
    from torch import neg as ident
except ImportError:
    def ident(x):
        return x
class M(nn.Module):
    # layers
    def forward(self, x, res):
        return self.norm(ident(self.drop(x)) + res)
#CASE: (r(2,4,8),r(2,4,8))
