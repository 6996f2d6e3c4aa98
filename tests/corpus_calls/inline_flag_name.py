def bias(s, flag):
    if flag:
        s = s * s
    return s
class M(nn.Module):
    # layers
    def forward(self, x, f=False):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        s = bias(s, f)
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),)
#CASE: (r(2,4,8),True)
