class M(nn.Module):
    # layers
    def forward(self, q, k, v, it=(1, 0), m=None):
        it = list(it)
        y = 0
        while (n := it.pop()) is not None and it:
            s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
            if n:
                s = s * n
            w = F.softmax(s, dim=-1)
            y = y + torch.matmul(w, v)
            n = 5
        return y, n
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),(1,2,0))
