class M(nn.Module):
    # layers
    def forward(self, q, k, v, need=None, a=1):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return (y, w) if need and not (a == 1 or need is False) else (y, None) if a != 2 else w.mean()
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),True)
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),True,2)
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),False,2)
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),True,3)
