class M(nn.Module):
    # layers
    def forward(self, x, res, other):
        def f(self, x):
            return F.gelu(self.dense(x))
        return f(other, x)
#CASE: (r(2,4,8),r(2,4,8),__import__('types').SimpleNamespace(dense=lambda x: x*3))
