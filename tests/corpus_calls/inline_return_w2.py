def pick(w, need):
    if need:
        return w
    return None
class M(nn.Module):
    # layers
    def forward(self, q, k, v, need=True, output_attentions=False):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y, pick(w, output_attentions)
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4))
#CASE: (r(2,4,4),r(2,4,4),r(2,4,4),False,True)
