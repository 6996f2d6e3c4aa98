class M(nn.Module):
    # layers
    def forward(self, q, k, v, need=False):
        b, h, l, d = q.shape
        scores = torch.matmul(q, k.transpose(2, 3)) / math.sqrt(d)
        attn = F.softmax(scores, dim=3)
        out = torch.matmul(self.drop(attn), v)
        out = out.transpose(1, 2)
        if out.is_contiguous():
            print("contiguous")
        out[:, 0] = 0
        o2 = out.transpose(1, 2)
        o2.view(b * h, l, d)[0] = 1
        return out, out.stride()
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8))
