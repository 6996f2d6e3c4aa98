class M(nn.Module):
    # layers

    act = staticmethod(lambda x: x * 9)

    def forward(self, x, res):
        return self.act(self.dense(x))
