class M(nn.Module):
    # layers
    def forward(self, q, k, v, m):
        s = torch.matmul(q, k.transpose(-1, -2))
        s += m
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),r(4,4))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),r(3,2,4,4))
#CASE: (r(1,4,8),r(1,4,8),r(1,4,8),r(3,4,4))
#CASE: (r(2,4,8).half(),r(2,4,8).half(),r(2,4,8).half(),r(4,4))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),r(4,4).double())
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),2)
