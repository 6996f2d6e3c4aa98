class M(nn.Module):
    # layers
    def forward(self, x, a=None, b=None):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if (a or b) is not None:
            s = s * s
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),)
#CASE: (r(2,4,8),1)
#CASE: (r(2,4,8),1,2)
#CASE: (r(2,4,8),0,None)
#CASE: (r(2,4,8),0,3)
