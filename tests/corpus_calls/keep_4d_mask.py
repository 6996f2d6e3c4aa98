class M(nn.Module):
    # layers
    def forward(self, q, k, v, m):
        s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s + m, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),r(3,1,4,4))
#CASE: (r(2,4,8),r(2,4,8),r(2,4,8),r(2,3,2,4,4))
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),r(2,2,3,4,4))
#CASE: (r(1,3,4,8),r(1,3,4,8),r(1,3,4,8),r(2,1,4,4))
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),r(4))
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),r(4,1))
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),r(()))
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),r(2,3,4,4).requires_grad_())
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),r(4,4).requires_grad_())
#CASE: (r(2,3,4,8).requires_grad_(),r(2,3,4,8),r(2,3,4,8),r(1,4).requires_grad_())
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),torch.ones(4,4,dtype=torch.bool))
#CASE: (r(2,3,4,8),r(2,3,4,8),r(2,3,4,8),torch.ones(4,4,dtype=torch.long))
