class M(nn.Module):
    # layers
    def forward(self, q, k, v, train=False):
        with torch.set_grad_enabled(train):
            s = torch.matmul(q, k.transpose(-1, -2)) * 0.5
        w = F.softmax(s, dim=-1)
        y = torch.matmul(w, v)
        return y
#CASE: (r(2,4,4).requires_grad_(),r(2,4,4),r(2,4,4).requires_grad_())
