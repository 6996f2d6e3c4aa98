class M(nn.Module):
    # layers
    def forward(self, q, k, v, c):
        w = torch.matmul(q, k.transpose(-1, -2)) / 2.0
        w = torch.where(c, w.to(torch.float16), -100.0)
        w = F.softmax(w, dim=-1).to(v.dtype)
        return torch.matmul(w, v)
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),torch.ones(4,4).bool().tril())
#CASE: (r(2,3,4,8)*300,r(2,3,4,8)*300,r(2,3,4,8),torch.ones(4,4).bool().tril())
