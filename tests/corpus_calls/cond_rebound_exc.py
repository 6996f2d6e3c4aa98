class M(nn.Module):
    # layers
    def forward(self, q, k, v, need=False):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        try:
            int("x")
        except ValueError as need:
            if need:
                print("yes")
        need = not y.requires_grad
        if need:
            y = y + w.sum()
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
