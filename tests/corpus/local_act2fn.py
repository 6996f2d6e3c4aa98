class M(nn.Module):
    # layers

    def forward(self, x, res):
        from transformers.activations import ACT2FN
        ACT2FN = {"gelu": F.relu}
        h = self.dense(x)
        return ACT2FN["gelu"](h)
