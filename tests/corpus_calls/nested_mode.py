class M(nn.Module):
    # layers
    def forward(self, q, k, v, m=None, n=0):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if m is not None:
            if n > 1:
                m = m * n
            s = s + m
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),r(4,4))
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),r(4,4),3)
