class M(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.bn = nn.Conv2d(4, 8, 3, padding=1), nn.BatchNorm2d(8)
    def forward(self, x, n=None):
        for n in (0, 1):
            h = self.conv(x)
            if n == 1: h = self.bn(h)
            if n == 0:
                h = self.bn(h)
        h = self.conv(x)
        if self.training and n:
            return self.bn(h)
        print(h.sum())
        h = self.conv(
            x,
        )  # conv
        if n:  # test
            # comment
            h = h + 1
        else:
            # other
            h = self.bn(h)
        return h
#CASE: (r(2,4,8,8),)
