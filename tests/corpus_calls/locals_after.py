class M(nn.Module):
    # layers
    def forward(self, q, k, v, need=False):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        tmp = v
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        if need:
            return y, w
        return y, sorted(n for n in dir() if n in ("tmp", "w", "s"))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
