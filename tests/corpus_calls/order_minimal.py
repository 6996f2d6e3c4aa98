class M(nn.Module):
    # layers
    def forward(self, q, k, v, past=None, need=False):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if past is None:
            return s
        if past[0] > 3 or past is not None and self.flag:
            s = s * 2
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
