class M(nn.Module):
    def __init__(self, c=True):
        super().__init__()
        self.q = nn.Linear(8, 8)
        self.k = nn.Linear(8, 8) if not c else None
        self.v = nn.Linear(8, 8)
    def forward(self, x):
        q = self.q(x)
        assert self.k is not None, "no k"
        k = self.k(x)
        v = self.v(x)
        return q, k, v
