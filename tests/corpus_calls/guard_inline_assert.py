def check2(x, n):
    assert n != 3
    return x
class M(nn.Module):
    # layers
    def forward(self, q, k, v, n=2, need=False):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        s = check2(s, n)
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        if need:
            return y, w
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),3)
