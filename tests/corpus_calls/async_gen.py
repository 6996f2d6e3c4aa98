class M(nn.Module):
    # layers
    def gen(self, q, k, v, need=False):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        yield 1
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        yield y
        if need:
            yield w
    def forward(self, q, k, v, need=False):
        return list(self.gen(q, k, v, need))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),True)
