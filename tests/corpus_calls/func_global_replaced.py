def ident(x):
    return x
def setup():
    global ident
    ident = torch.neg
setup()
class M(nn.Module):
    # layers
    def forward(self, x, res):
        return self.norm(ident(self.drop(x)) + res)
#CASE: (r(2,4,8),r(2,4,8))
