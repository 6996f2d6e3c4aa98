class M(nn.Module):
    # layers
    def forward(self, q, k, v, mode="a", need=False):
        if mode == "a":
            s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        elif mode == "b":
            s = torch.matmul(q, k.transpose(-1, -2)) * 0.1
        else:
            raise ValueError(mode)
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),"b")
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),"c")
