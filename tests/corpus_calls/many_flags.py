class M(nn.Module):
    # layers
    def forward(self, q, k, v, f0=0, f1=0, f2=0, f3=0, f4=0, f5=0, f6=0, f7=0, f8=0, f9=0, g0=0, g1=0, g2=0, g3=0, g4=0, g5=0, g6=0, g7=0):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        if f0: s = s + f0
        if f1: s = s + f1
        if f2: s = s + f2
        if f3: s = s + f3
        if f4: s = s + f4
        if f5: s = s + f5
        if f6: s = s + f6
        if f7: s = s + f7
        if f8: s = s + f8
        if f9: s = s + f9
        if g0: s = s + g0
        if g1: s = s + g1
        if g2: s = s + g2
        if g3: s = s + g3
        if g4: s = s + g4
        if g5: s = s + g5
        if g6: s = s + g6
        if g7: s = s + g7
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
