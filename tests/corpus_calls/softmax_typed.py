class M(nn.Module):
    # layers
    def forward(self, q, k, v, m=None):
        s = torch.matmul(q, k.transpose(-1, -2))
        if m is not None:
            s += m
        w = F.softmax(s.float(), dim=-1).type_as(s)
        w = F.dropout(w, p=0.0, training=self.training)
        return torch.matmul(w, v)
#CASE: (r(2,4,8).double(),r(2,4,8).double(),r(2,4,8).double())
#CASE: (r(2,4,8).double(),r(2,4,8).double(),r(2,4,8).double()*1e6,r(4,4).double())
#CASE: (r(2,3,4,8).half(),r(2,3,4,8).half(),r(2,3,4,8).half(),r(4,4).half())
#CASE: (r(2,3,4,8).half()*200,r(2,3,4,8).half()*200,r(2,3,4,8).half(),r(4,4).half())
#CASE: (r(2,3,4,8).bfloat16(),r(2,3,4,8).bfloat16(),r(2,3,4,8).bfloat16(),r(4,4))
#CASE: (r(1,4,8),r(1,4,8),r(1,4,8),r(3,4,4))
#CASE: (torch.ones(1,4,8).long(),torch.ones(1,4,8).long(),torch.ones(1,4,8).long())
