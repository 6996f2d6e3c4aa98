class M(nn.Module):
    # layers
    def forward(self, x):
        y = F.linear(x.view(2, 4, 2, 4), self.norm.weight[:4])
        return F.softmax(y, dim=3 - 1), F.softmax(y.view(2, 4, 2), dim=2)
