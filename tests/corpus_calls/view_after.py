class M(nn.Module):
    # layers
    def heads(self, x):
        return x.view(x.shape[0], x.shape[1], 2, 4).transpose(1, 2)
    def forward(self, x):
        q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y.view(x.shape[0] * 2, x.shape[1], 4)
