class M(nn.Module):
    # layers

    def step(self):
        self.h = self.h ** 2 + 1
        return self.h * 0.5

    def forward(self, x, res):
        return self.norm(self.step() + self.dropout(self.h))
