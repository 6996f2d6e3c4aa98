class M(nn.Module):
    # layers
    def toggle(self, y):
        self.__dict__["flag"] = True
        print("t")
    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if self.flag:
            s = s + 1
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        self.toggle(y)
        if self.flag:
            return y, w
        return y
