class M(nn.Module):
    # layers

    def forward(self, x, res):
        import types
        state = types.SimpleNamespace(h=x)
        a = state.h
        state.h = a ** 2
        return self.norm(self.dropout(state.h) + a)
