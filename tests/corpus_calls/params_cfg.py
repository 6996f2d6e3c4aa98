class M(nn.Module):
    # layers
    def forward(self, q, k, v, cfg):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        if cfg.flag:
            return y, w
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),m)
