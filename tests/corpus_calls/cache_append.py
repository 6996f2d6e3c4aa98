class M(nn.Module):
    # layers
    def forward(self, q, k, v, maps=None):
        maps = [] if maps is None else maps
        w = None
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(8)
        w = F.softmax(scores, dim=-1)
        out = torch.matmul(self.drop(w), v)
        maps.append(out.mean())
        if len(maps) > 1 or maps:
            return out, w
        return out, None
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
