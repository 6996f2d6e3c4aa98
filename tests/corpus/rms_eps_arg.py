class M(nn.Module):
    # layers

    def g(self, x, eps):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)

    def forward(self, x, res):
        return self.g(x, torch.full((2, 1), 0.5))
