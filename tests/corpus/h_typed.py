class M(nn.Module):
    # layers

    def forward(self, x, res):
        h: "torch.Tensor" = self.dense(x)
        y: "torch.Tensor" = F.gelu(h)
        return y
