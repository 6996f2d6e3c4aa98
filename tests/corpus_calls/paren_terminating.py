class M(nn.Module):
    # layers
    def forward(self, q, k, v, a=None, b=None):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        if (a or b) is not None:
            return y, w
        return y
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),1)
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),0)
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),0,3)
