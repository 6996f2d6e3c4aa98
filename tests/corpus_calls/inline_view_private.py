def bump(s, m):
    s += m
    return s
class M(nn.Module):
    # layers
    def forward(self, q, k, v, m, need=False):
        s = torch.matmul(q, k.transpose(-1, -2))
        t = s
        bump(s, m)
        w = F.softmax(t, dim=-1)
        y = torch.matmul(w, v)
        if need:
            return y, w
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),r(4,4))
