class M(nn.Module):
    # layers
    def forward(self, x, out):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        out.append(1)
        if out:
            return y, w
        return y
#CASE: (r(2,4,8),[])
#CASE: (r(2,4,8),[1])
