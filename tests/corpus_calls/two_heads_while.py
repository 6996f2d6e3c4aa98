class M(nn.Module):
    # layers
    def forward(self, q, k, v, n=2):
        total = 0
        while n:
            if n == 1:
                total = total + last.mean()
            s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
            last = v
            w = F.softmax(s, dim=-1)
            y = torch.matmul(w, v)
            if n > 1:
                total = total + w.sum() * 0
            n -= 1
        return y, total
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
