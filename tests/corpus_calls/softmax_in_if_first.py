class M(nn.Module):
    # layers
    def forward(self, q, k, v, sig=False):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if not sig:
            w = F.softmax(s, dim=-1)
        else:
            print("sig")
            return s
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),True)
