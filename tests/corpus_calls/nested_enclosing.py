class M(nn.Module):
    # layers
    def forward(self, q, k, v):
        need = False
        def toggle():
            nonlocal need
            need = True
        def inner(q, k, v):
            s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
            w = F.softmax(s, dim=-1)
            y = torch.matmul(w, v)
            toggle()
            if need:
                return y, w
            return y
        return inner(q, k, v)
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
