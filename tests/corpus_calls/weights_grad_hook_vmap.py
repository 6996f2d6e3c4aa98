class M(nn.Module):
    # layers
    def forward(self, q, k, v):
        def f(q, k, v):
            s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
            w = F.softmax(s, dim=-1)
            y = torch.matmul(w, v)
            return y
        return torch.vmap(f)(q, k, v)
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8))
#CASE: (r(5,2,3,4,8),r(5,2,3,4,8),r(5,2,3,4,8))
