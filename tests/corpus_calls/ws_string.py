class M(nn.Module):
    # layers
    def forward(self, x, kind="a  b"):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if kind == "a  b":
            s = s + x.mean() * s
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),)
#CASE: (r(2,4,8),"c")
