class M(nn.Module):
    # layers
    def forward(self, q, k, v, a=0, b=0, c=0):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        if a and (b or c) and not (a == 3 and b is not None or c == "x"):
            return y, w
        if not (a or not b):
            y = y + w.sum()
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),1,1,0)
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),3,1,0)
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),3,None,1)
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),0,1,1)
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),2,0,"x")
