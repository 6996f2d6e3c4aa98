class M(nn.Module):
    # layers
    def forward(self, q, k, v, need=False):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        n = 3
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        class C:
            val = n
        z = [n for _ in range(2)]
        if need:
            return y, w
        return y, C.val, z, f"{n}"
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
