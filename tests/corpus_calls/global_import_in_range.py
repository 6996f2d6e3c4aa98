class M(nn.Module):
    # layers
    def forward(self, q, k, v, need=False):
        global LAST
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        import math as mm
        LAST = need
        w = F.softmax(s, dim=-1)
        def helper():
            return mm.pi
        y = torch.matmul(w, v)
        if need:
            return y, w
        return y * mm.pi
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
