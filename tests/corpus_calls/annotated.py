def attention(query, key, value, mask=None, dropout=None):
    "Compute 'Scaled Dot Product Attention'"
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn
def attend(query, key, value, mask=None, dropout=None, need=False):
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    out = torch.matmul(p_attn, value)
    if need:
        return out, p_attn
    return out, None
class M(nn.Module):
    # layers
    def forward(self, x, mask=None, need=False):
        return attention(self.q(x), self.k(x), self.v(x), mask, self.drop), attend(x, x, x, mask, self.drop, need)
#CASE: (r(2,4,8),)
#CASE: (r(2,4,8),torch.ones(4,4).tril())
#CASE: (r(2,4,8),torch.ones(4,4).tril(), True)
#CASE: (r(2,4,8),None, True)
