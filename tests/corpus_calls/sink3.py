class M(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.bn, self.conv2, self.bn2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4)
        self.use = None
    def forward(self, x, f=False):
        h = self.conv(
            x
        )  # conv
        if self.use is not None or not f:  # norm
            h = self.bn(h)
        # then
        y = self.conv2(h)
        if f:
            print("f")
            if y is h: print("same")
        else:
            y = self.bn2(y)
        return h, y
#CASE: (r(2,4,8,8),)
#CASE: (r(2,4,8,8),True)
