class M(nn.Module):
    # layers

    def __getattr__(self, name):
        if name == "act":
            return lambda x: x * 9
        return super().__getattr__(name)

    def forward(self, x, res):
        return self.act(self.dense(x))
