class M(nn.Module):
    # layers
    def step(self):
        self.__dict__["flag"] = not self.__dict__["flag"]
    def forward(self, q, k, v):
        w = None
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if self.flag:
            s = s * s
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        self.step()
        return y, w if self.flag else None
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
