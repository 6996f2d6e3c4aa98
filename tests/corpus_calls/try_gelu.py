class M(nn.Module):
    # layers
    def forward(self, x):
        try:
            h = self.dense(x)
        except RuntimeError:
            return x
        h = F.gelu(h)
        return h
#CASE: (r(2,4,8),)
#CASE: (r(2,4,7),)
