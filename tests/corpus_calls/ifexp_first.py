class M(nn.Module):
    # layers
    def forward(self, q, k, v, f=True):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5 if f else q * 2
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),False)
