class M(nn.Module):
    # layers
    def forward(self, q, k, v, m, need=False):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        d = s.data if need else None
        s += m
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y, d
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),r(4,4))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),r(4,4),True)
