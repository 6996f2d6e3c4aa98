class M(nn.Module):
    # layers
    def forward(self, x, b=0.5):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s + b, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),)
#CASE: (r(2,4,8),1)
#CASE: (r(2,4,8),r(4,4))
