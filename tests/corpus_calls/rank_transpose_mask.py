class M(nn.Module):
    # layers
    def forward(self, x, m):
        q = self.q(x).view(2, 4, 8)
        k = self.k(x).view(2, 4, 8)
        s = torch.matmul(q, k.transpose(1, 2)) * 0.5
        s = s + m
        w = F.softmax(s, dim=2)
        y = torch.matmul(w, self.v(x))
        return y
#CASE: (r(2,4,8),r(4,4))
#CASE: (r(2,4,8),r(2,2,4,4))
#CASE: (r(2,4,8),r(4,2,4,4))
