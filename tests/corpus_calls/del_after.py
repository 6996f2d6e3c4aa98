class M(nn.Module):
    # layers
    def forward(self, q, k, v, need=False):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        if need:
            return y, w
        del s
        return y
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
