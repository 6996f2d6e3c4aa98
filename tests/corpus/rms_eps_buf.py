class M(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.dropout = nn.Dropout(0.5)
        self.norm = nn.LayerNorm(4)
        self.dense = nn.Linear(4, 4)
        self.act = nn.GELU()
        self.register_buffer('eps', torch.tensor(1e-6))
        self.h = torch.arange(8.).reshape(2, 4)

    def forward(self, x, res):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
