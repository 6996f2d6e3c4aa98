class M(nn.Module):
    # layers
    def forward(self, q, k, v, rel=None):
        if rel is None:
            s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        else:
            s = torch.matmul(q, k.transpose(-1, -2)) * 0.5 + rel * q
        if rel is None:
            w = F.softmax(s, dim=-1)
            y = torch.matmul(w, v)
        else:
            y = s
        return y
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),0.9)
