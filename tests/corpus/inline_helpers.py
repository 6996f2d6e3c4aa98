def weights(scores, dim, wide=False):
    if wide:
        return F.softmax(scores.float(), dim=dim)
    return F.softmax(scores, dim=dim)


def twice(x, dim=-1):
    y = F.softmax(x, dim=dim)
    print(y.shape)
    return F.softmax(y, dim=dim)


def late(x):
    return F.gelu(x) * 2


def gelu(x):
    return F.gelu(x)


class M(nn.Module):
    # layers

    def drop(self, x):
        return self.dropout(x)

    def finish(self, x, res):
        self.seen = x.sum()
        return self.norm(x + res)

    def both(self, x):
        return self.dense(x), self.dense(x) * 2

    def forward(self, x, res):
        def local(y, more=1):
            return F.gelu(self.dense(y)) * more + x.mean()

        a, b = self.both(x)
        return (
            weights(x, -1), weights(x, dim=0), weights(x, -1, True), twice(x), late(self.dense(x)),
            gelu(self.dense(x)), self.norm(self.drop(x) + res), self.finish(self.dropout(x), res), self.seen,
            local(x), local(res, more=3), F.gelu(a), F.gelu(b),
        )
