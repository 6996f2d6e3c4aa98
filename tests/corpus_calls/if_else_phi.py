class M(nn.Module):
    # layers
    def forward(self, x, flag=True):
        q, k, v = self.q(x), self.k(x), self.v(x)
        if flag:
            s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        else:
            s = x @ x.transpose(1, 2)
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),True)
#CASE: (r(2,4,8),False)
