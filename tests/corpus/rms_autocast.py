class M(nn.Module):
    # layers

    def forward(self, x, res):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = x @ torch.eye(4)
            y = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        return y.dtype
