class M(nn.Module):
    # layers
    def forward(self, x, res, f=True):
        if self.training and f:
            x = self.drop(x)
        x = self.norm(x + res)
        return x
#CASE: (r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8),r(2,4,8),False)
