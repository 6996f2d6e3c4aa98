class M(nn.Module):
    # layers

    def forward(self, x, res):
        a = x * torch.rsqrt(x.pow(2).mean(dim=(-1,), keepdim=True) + 1e-6)
        b = x * torch.rsqrt(x.pow(2).mean([-1], True) + 1e-6)
        c = x * torch.rsqrt(torch.mean(x * x, dim=-1, keepdim=True, dtype=torch.float64) + 1e-6)
        d = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * x
        e = x * (x.pow(2).mean(-1, keepdim=True) + 1e-6) ** -0.5
        return a, b, c, d, e
