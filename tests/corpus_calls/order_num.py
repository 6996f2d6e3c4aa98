class M(nn.Module):
    # layers
    def forward(self, x, n=None):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if n is None:
            return s
        if n > 3:
            s = s + 1
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),)
#CASE: (r(2,4,8),2)
#CASE: (r(2,4,8),4)
