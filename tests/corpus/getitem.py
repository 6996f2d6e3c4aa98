class M(nn.Module):
    # layers

    def forward(self, x, res):
        class Bad:
            def __getitem__(s, o):
                x.mul_(3)
                return o
        b = Bad()
        h = self.dense(x)
        t = b[1]
        return F.gelu(h), t
