class M(nn.Module):
    # layers
    def forward(self, q, k, v, m, need=False):
        s = torch.matmul(q, k.transpose(-1, -2))
        a = s[0]
        s += m
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        if need:
            return y, w
        return y, a
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),r(4,4))
