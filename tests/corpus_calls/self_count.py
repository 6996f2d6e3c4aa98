class M(nn.Module):
    # layers
    def forward(self, q, k, v):
        self.norm.n = getattr(self.norm, "n", 0)
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if self.norm.n != 0:
            s = s * s
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        self.norm.n += 1
        if self.norm.n == 1:
            return y, w
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
