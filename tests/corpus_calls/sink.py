class M(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.bn = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.use = True
        self.n = 0
    def forward(self, x, f=False):
        for i in range(3):
            x = self.conv(x)
            if self.use and i != self.n:
                x = self.bn(x)
                if i == 2: break
            else:
                pass
        h = self.conv(x)
        if f:
            return h
        if self.use:
            return self.bn(h)
        return h, x
#CASE: (r(2,4,8,8),)
#CASE: (r(2,4,8,8),True)
