def act(x, mode):
    assert mode == "gelu", mode
    return F.gelu(x)
def act2(x, mode):
    if mode != "gelu":
        raise ValueError(mode)
    return F.gelu(x)
class M(nn.Module):
    # layers
    def forward(self, x, mode="gelu"):
        return act(self.dense(x), mode)
class M2(nn.Module):
    # layers
    def forward(self, x, mode="gelu"):
        return act2(self.dense(x), mode)
#CASE: (r(2,4,8),)
#CASE: (r(2,4,8),"relu")
