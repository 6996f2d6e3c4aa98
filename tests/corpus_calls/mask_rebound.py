class M(nn.Module):
    # layers
    def forward(self, q, k, v, m=None):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if m is not None:
            m = m[:, None]
            s = s + m
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
#CASE: (r(4,4,4),r(4,4,4),r(4,4,4),r(4,4))
