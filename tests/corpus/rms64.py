class M(nn.Module):
    # layers

    def forward(self, x, res):
        x = x.double()
        v = x.float().pow(2).mean(-1, keepdim=True)
        y = x * torch.rsqrt(v + 1e-6)
        return y, str(y.dtype)
