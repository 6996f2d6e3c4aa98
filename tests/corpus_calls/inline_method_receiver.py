class M(nn.Module):
    # layers
    def bias(this, s):
        if this.flag:
            s = s * s
        return s
    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        s = self.bias(s)
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
