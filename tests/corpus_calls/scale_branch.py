class M(nn.Module):
    # layers
    def forward(self, q, k, v, scale=None, need=False):
        s = torch.matmul(q, k.transpose(-1, -2))
        if scale is not None:
            s = s * scale
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        if need:
            return y, w
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),0.5)
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),0.5,True)
