class M(nn.Module):
    # layers
    def forward(self, q, k, v):
        q[:, 0] = float("nan")
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return torch.isnan(y).any()
#CASE: (r(3,4,8),r(3,4,8),r(3,4,8))
