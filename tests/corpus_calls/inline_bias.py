def add(s, m):
    if m is None:
        return s
    return s + m
class M(nn.Module):
    # layers
    def forward(self, q, k, v, mask=None):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        s = add(s, mask)
        w = F.softmax(s, dim=-1)
        return torch.matmul(w, v)
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),r(4,4))
