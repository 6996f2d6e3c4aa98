class M(nn.Module):
    # layers
    def forward(self, x, m):
        q, k, v = self.q(x), self.k(x), self.v(x)
        try:
            s = torch.matmul(q, k.transpose(-1, -2)) * 0.5 + m
        except RuntimeError:
            raise ValueError("bad mask")
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),r(4,4))
#CASE: (r(2,4,8),r(3,5))
