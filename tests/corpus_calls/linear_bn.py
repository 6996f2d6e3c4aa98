class M(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.l, self.b = nn.Linear(4, 4), nn.BatchNorm1d(4, track_running_stats=False)
        self.l2, self.b2 = nn.Linear(4, 4), nn.BatchNorm1d(4, momentum=None, affine=False)
        self.c, self.b3 = nn.Conv1d(4, 4, 3, padding=2, padding_mode="circular", groups=2), nn.BatchNorm1d(4)
        self.c4, self.b4 = nn.ConvTranspose1d(4, 4, 3, stride=2, output_padding=1, groups=2), nn.BatchNorm1d(4)
        for b in (self.b2, self.b3, self.b4):
            b.running_var.mul_(3.0); b.running_mean.add_(0.3)
        for p in self.parameters(): p.requires_grad_(False)
    def forward(self, x):
        return self.b(self.l(x)), self.b2(self.l2(x)), self.b3(self.c(x.view(-1, 4, 8))), self.b4(self.c4(x.view(-1, 4, 8)))
#CASE: (r(64,4),)
#CASE: (r(64,4).requires_grad_(),)
#CASE: (torch.where(r(64,4)>2,float('nan'),r(64,4)),)
