class M(nn.Module):
    # layers
    def weights(self, s, m):
        if m is not None:
            s = s + m
        return F.softmax(s, dim=-1)
    def forward(self, q, k, v, m=None):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = self.weights(s, m)
        return torch.matmul(w, v)
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),r(4,4))
