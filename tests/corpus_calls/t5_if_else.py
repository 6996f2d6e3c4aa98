class M(nn.Module):
    # layers
    def forward(self, x, rel=False):
        q, k, v = self.q(x), self.k(x), self.v(x)
        if not rel:
            s = torch.matmul(q, k.transpose(-1, -2))
        else:
            s = q + k @ q.transpose(1, 2) @ k
            s = s[..., :4]
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),)
#CASE: (r(2,4,8),True)
