FLAG = False
def toggle(y):
    global FLAG
    FLAG = True
class M(nn.Module):
    # layers
    def forward(self, x):
        q, k, v = self.q(x), self.k(x), self.v(x)
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        toggle(y)
        if FLAG:
            return y, w
        return y
