class M(nn.Module):
    # layers

    def forward(self, x, res):
        h = self.dropout(x)
        z = h
        y = self.norm(z + res)
        g = self.dense(y)
        g
        w = F.gelu(g)
        k = self.dense(w)
        u: object = k
        v = F.gelu(u)
        n = self.dropout(v)
        if (m := n) is None:
            return x
        return self.norm(m + res), w
