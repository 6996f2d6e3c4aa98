class M(nn.Module):
    # layers
    def forward(self, x, mode="dot"):
        q, k, v = self.q(x), self.k(x), self.v(x)
        if mode == "dot":
            scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(8)
        else:
            scores = -torch.cdist(q, k)
        attn = self.drop(F.softmax(scores, dim=-1))
        return torch.matmul(attn, v)
#CASE: (r(2,4,8),)
#CASE: (r(2,4,8),"l2")
