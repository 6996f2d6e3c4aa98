class M(nn.Module):
    # layers
    def forward(self, x, f=True):
        with torch.no_grad():
            h = self.dense(x)
        h = self.act(h)
        if f:
            with torch.autocast("cpu", torch.bfloat16):
                z = self.dense(x)
        else:
            return x
        return h, self.act(z)
#CASE: (r(2,4,8),)
