class M(nn.Module):
    # layers
    def forward(self, q, k, v, m=None, need=False):
        s = torch.matmul(q, k.transpose(-1, -2))
        if m is not None:
            s += m
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        if need:
            return y, w
        return y
#CASE: (r(1,4,8),r(1,4,8),r(1,4,8),r(3,4,4))
#CASE: (r(2,3,4,8).half(),r(2,3,4,8).half(),r(2,3,4,8).half(),r(4,4))
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),r(4,4).double())
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),r(4,4))
