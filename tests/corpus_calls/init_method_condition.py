class M(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.q = nn.Linear(8, 8); self.k = nn.Linear(8, 8); self.v = nn.Linear(8, 8)
        for p in self.k.parameters():
            p.requires_grad_(False)
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
        self.d = nn.ModuleDict({"q": nn.Linear(8, 8), "k": nn.Linear(8, 8), "v": nn.Linear(8, 8)})
        self.v.register_forward_hook(lambda m, i, o: print("hook"))
    def forward(self, x):
        a = self.q(x), self.k(x), self.v(x)
        b = [self.layers[0](x), self.layers[1](x), self.layers[2](x)]
        c = [self.d[n](x) for n in "qkv"]
        d = self.d["q"](x), self.d["k"](x), self.d["v"](x)
        return a, b, c, d
#CASE: (r(2,4,8),)
