def attention(query, key, value, scale=0.5):
    scores = torch.matmul(query, key.transpose(-2, -1)) * scale
    p = F.softmax(scores, dim=-1)
    return torch.matmul(p, value)
class M(nn.Module):
    # layers
    def forward(self, x):
        return attention(self.q(x), self.k(x), self.v(x))
