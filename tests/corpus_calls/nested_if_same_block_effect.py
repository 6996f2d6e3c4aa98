class M(nn.Module):
    # layers
    def forward(self, x, res, f=True, g=True):
        if f:
            if g:
                h = self.drop(x)
            else:
                self.seen = 1
                return None
        else:
            self.seen = 2
            return res
        return self.norm(h + res)
#CASE: (r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8),r(2,4,8),True,False)
#CASE: (r(2,4,8),r(2,4,8),False)
