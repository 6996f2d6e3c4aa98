class M(nn.Module):
    # layers
    def forward(self, q, k, v, n=2):
        for i in range(n):
            s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
            if i == 5:
                w = s
                break
            w = F.softmax(s, dim=-1)
            y = torch.matmul(w, v)
        else:
            return y, w
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
