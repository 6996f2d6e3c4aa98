def add(s, mask):
    if mask is not None:
        s = s * 2 + mask
    return s
class M(nn.Module):
    # layers
    def forward(self, q, k, v, mask=None, other=None):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        s = add(s, other)
        w = F.softmax(s, dim=-1)
        return torch.matmul(w, v)
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),r(4,4))
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),None,r(4,4))
