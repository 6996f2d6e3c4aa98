class M(nn.Module):
    # layers
    def forward(self, q, k, v, f0=0, f1=0, f2=0, f3=0, f4=0, f5=0, f6=0, f7=0, f8=0, f9=0, g0=0, g1=0, g2=0, g3=0, g4=0, g5=0, g6=0, g7=0):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        if f0 or f1: y = y + w.sum()
        if f2 or f3: y = y + w.sum()
        if f4 or f5: y = y + w.sum()
        if f6 or f7: y = y + w.sum()
        if f8 or f9: y = y + w.sum()
        if g0 or g1: y = y + w.sum()
        if g2 or g3: y = y + w.sum()
        if g4 or g5 > 3 and not (g6 == 2 or g7 is None): y = y + w.sum()
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),0,0,1)
