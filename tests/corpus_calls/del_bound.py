class M(nn.Module):
    # layers
    def forward(self, x, mask, f=False):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        tmp = mask
        if f:
            s = s * tmp
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        del tmp
        return y
#CASE: (r(2,4,8),r(4,4))
#CASE: (r(2,4,8),r(4,4),True)
