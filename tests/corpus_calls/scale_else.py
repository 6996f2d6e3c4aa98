class M(nn.Module):
    # layers
    def forward(self, q, k, v, scale=None):
        if scale is None:
            s = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        else:
            s = torch.matmul(q, k.transpose(-1, -2)) * scale
        w = F.softmax(s, dim=-1)
        return torch.matmul(w, v)
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),0.9)
