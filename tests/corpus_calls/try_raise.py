class M(nn.Module):
    # layers
    def forward(self, x):
        try:
            h = self.dense(x)
        except RuntimeError as e:
            raise ValueError("shape") from e
        return F.gelu(h)
#CASE: (r(2,4,8),)
#CASE: (r(2,4,7),)
