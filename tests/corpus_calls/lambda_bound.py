class M(nn.Module):
    # layers
    def forward(self, x, mask, f=False):
        q, k, v = self.q(x), self.k(x), self.v(x)
        get = lambda: last
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        last = mask
        if f:
            s = s * 2
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y + get().mean()
#CASE: (r(2,4,8),r(4,4))
#CASE: (r(2,4,8),r(4,4),True)
