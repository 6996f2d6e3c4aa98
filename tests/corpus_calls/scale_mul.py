class M(nn.Module):
    # layers
    def forward(self, q, k, v, c):
        s = torch.matmul(q, k.transpose(-1, -2)) * c
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),-3.0)
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),0.0)
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),-0.3)
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),10**400)
