class M(nn.Module):
    # layers
    def forward(self, q, k, v):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if self.flag:
            s = s * s
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        self.flag = not self.flag
        if self.flag:
            return y, w
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
