class M(nn.Module):
    # layers
    def forward(self, q, k, v, *rest, need=False, **kw):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if rest:
            s = s * rest[0]
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        kw["y"] = 1
        if kw:
            y = y + w.sum()
        if need: return y, w
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),3.0)
