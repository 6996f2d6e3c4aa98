class M(nn.Module):
    # layers
    def forward(self, q, k, v, m=None):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if m is not None:
            s = s + m
        w = F.softmax(s, dim=-1)
        return torch.matmul(w, v)
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),r(4))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),torch.zeros(1))
