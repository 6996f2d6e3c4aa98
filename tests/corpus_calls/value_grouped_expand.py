class M(nn.Module):
    # layers
    def forward(self, q, k, v, m=None):
        b, l, h, d = q.shape
        q = q.view(b, l, h, d).transpose(1, 2)
        k = k.view(b, l, 1, d).transpose(1, 2)
        v = v.view(b, l, 1, d).transpose(1, 2)
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(d)
        if m is not None:
            scores = scores + m
        attn = F.softmax(scores, dim=3)
        out = torch.matmul(self.drop(attn), v)
        return out
#CASE: (r(2,4,6,8),r(2,4,1,8),r(2,4,1,8))
#CASE: (r(2,4,6,8),r(2,4,1,8),r(2,4,1,8),r(2,1,1,4))
#CASE: (r(2,4,6,8),r(2,4,1,8),r(2,4,1,8),r(2,6,4,4))
#CASE: (r(2,4,6,8).requires_grad_(),r(2,4,1,8).requires_grad_(),r(2,4,1,8),r(2,6,4,4).requires_grad_())
