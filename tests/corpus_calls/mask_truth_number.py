class M(nn.Module):
    # layers
    def forward(self, q, k, v, a=0):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if a:
            s = s + a
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),1)
