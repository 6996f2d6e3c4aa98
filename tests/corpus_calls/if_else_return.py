class M(nn.Module):
    # layers
    def forward(self, x, flag=True):
        q, k, v = self.q(x), self.k(x), self.v(x)
        if flag:
            s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        else:
            return x
        w = F.softmax(s, dim=-1)
        return torch.matmul(w, v)
#CASE: (r(2,4,8),True)
#CASE: (r(2,4,8),False)
