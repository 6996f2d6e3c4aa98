class M(nn.Module):
    # layers
    def forward(self, q, k, v, m, need=False):
        t = s = torch.matmul(q, k.transpose(-1, -2))
        s += m
        w = F.softmax(t, dim=-1)
        y = torch.matmul(w, v)
        s2 = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        s2 += m
        w2 = F.softmax(s2, dim=-1)
        y2 = torch.matmul(w2, v)
        if need:
            return y, w, w2
        return y, y2
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),r(4,4))
