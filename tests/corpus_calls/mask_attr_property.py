class M(nn.Module):
    # layers
    @property
    def mask(self):
        return self.__dict__.get("_m")
    def forward(self, q, k, v):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if self.mask is not None:
            s = s + self.mask
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
