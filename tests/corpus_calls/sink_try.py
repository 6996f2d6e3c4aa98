class M(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.bn = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4)
    def forward(self, x, f=False):
        h = None
        try:
            h = self.conv(x)
            if self.nope:
                h = self.bn(h)
        except AttributeError:
            return h
        return h
#CASE: (r(2,4,8,8),)
