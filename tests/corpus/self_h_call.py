class M(nn.Module):
    # layers

    def step(self):
        self.h = self.h * 3 + 1

    def forward(self, x, res):
        self.h = x
        self.step()
        return self.norm(self.dropout(self.h) + res)
