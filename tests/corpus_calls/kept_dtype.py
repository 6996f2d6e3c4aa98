class M(nn.Module):
    # layers
    def forward(self, q, k, v):
        w = torch.matmul(q, k.transpose(-1, -2))
        w = F.softmax(w, dim=-1, dtype=torch.float32).to(q.dtype)
        return torch.matmul(w, v)
class N(nn.Module):
    def forward(self, q, k, v):
        w = torch.matmul(q, k.transpose(-1, -2))
        w = F.softmax(w.float(), dim=-1).to(q.dtype)
        return torch.matmul(w, v)
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
