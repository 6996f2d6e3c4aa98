class M(nn.Module):
    # layers
    def forward(self, q, k, v, need=False, c=2.0):
        s = torch.matmul(q, k.transpose(-1, -2))
        hook = q.register_hook(lambda g: g * 2) if q.requires_grad else None
        s.mul_(c)
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        if need:
            return y, w
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8).requires_grad_(),r(2,4,8),r(2,4,8))
