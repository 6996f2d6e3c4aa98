class M(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.len, self.print, self.torch, self.F = [nn.Linear(8, 8) for _ in range(4)]
        self.len = nn.Linear(8, 8)
        self.print = nn.Linear(8, 8)
        self.sum = nn.Linear(8, 8)
    def forward(self, x):
        a = self.len(x) * 2
        b = self.print(x) * 2
        c = self.sum(x) * 2
        g = lambda: sum([1])
        return a, b, c, g(), eval("len([1])"), locals().keys() and 1
