class M(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.conv, self.bn, self.conv2 = nn.Conv2d(4, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 1)
        self.drop, self.norm = nn.Dropout(0.), nn.LayerNorm(8)
    def forward(self, x, f=True):
        if f:
            h = self.conv(x)
        else:
            return x
        h = self.bn(h)
        if f:
            z = self.drop(x)
        else:
            raise ValueError
        z = self.norm(z + x)
        return h, z
#CASE: (r(2,4,8,8),)
#CASE: (r(2,4,8,8),False)
