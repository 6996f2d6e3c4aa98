class M(nn.Module):
    def __init__(self):
        super().__init__()
        self.drop, self.norm = nn.Dropout(0.0), nn.LayerNorm(8)
        self.ident = lambda x: x * 2
    def ident(self, x):
        return x
    def forward(self, x, res):
        return self.norm(self.ident(self.drop(x)) + res)
#CASE: (r(2,4,8),r(2,4,8))
