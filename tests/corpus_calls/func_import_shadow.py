def ident(x):
    return x
from torch import neg as ident
class M(nn.Module):
    # layers
    def forward(self, x, res):
        return self.norm(ident(self.drop(x)) + res)
#CASE: (r(2,4,8),r(2,4,8))
