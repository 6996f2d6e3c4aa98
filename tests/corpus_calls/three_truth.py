class M(nn.Module):
    # layers
    def forward(self, q, k, v, a=0, b=0, c=0):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if a:
            s = s + q.sum()
        if b:
            s = s + k.sum()
        if c:
            s = s + v.sum()
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),1)
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),1,1)
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),0,1,1)
