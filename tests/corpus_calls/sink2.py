class M(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.bn, self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.use = True
    def forward(self, x, f=False):
        x = self.conv(x)
        if x is not None and not f:
            x = self.bn(x)
        y = x = self.conv2(x)
        if not f: x = self.bn2(x)
        else:
            x = x + 1
        return x, y
#CASE: (r(2,4,8,8),)
#CASE: (r(2,4,8,8),True)
