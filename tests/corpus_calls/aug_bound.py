class M(nn.Module):
    # layers
    def forward(self, x, mask, f=False):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        n = 0
        if f:
            s = s * 2
            n = 1
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        n += 1
        return y
#CASE: (r(2,4,8),r(4,4))
