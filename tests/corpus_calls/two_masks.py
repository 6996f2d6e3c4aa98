class M(nn.Module):
    # layers
    def forward(self, q, k, v, bias=None, mask=None):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if bias is not None:
            s = s + bias
        if mask is not None:
            s = s + mask
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),r(2,4,4),r(4,4))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),None,r(4,4))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),r(4,4))
