class M(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.dropout = nn.Dropout(0.5)
        self.norm = nn.LayerNorm(4)
        self.dense = nn.Linear(4, 4)
        self.act = nn.GELU()
        self.flag = True
        self.dense.bias.data.add_(0.3)
        self.h = torch.arange(8.).reshape(2, 4)

    def forward(self, x, res):
        h = self.dense(x)
        n = 0
        while F.gelu(h).sum() < 1 + n and n < 5:
            x.mul_(2)
            n += 1
        return n, x, F.gelu(self.dense(x))
