class M(nn.Module):
    # layers
    def forward(self, x):
        n = [4]
        shape = [2] + n
        a = F.softmax(x.view(2, 4, 8), dim=2)
        b = F.softmax(x.reshape((2, 32)), 1)
        s2 = [2, 32]
        s2[1:] = [4, 8]
        c = F.softmax(x.view(s2), dim=1)
        s3 = [2, 32]
        t = s3
        t.insert(1, 1)
        d = F.softmax(x.view(s3), dim=1)
        sz = torch.Size([2, 4, 8])
        e = F.softmax(x.view(sz), dim=1)
        f = F.softmax(x.view(torch.int32).float(), dim=1)
        g = F.softmax(torch.einsum("bij,bkj->bik", x, x), dim=2)
        h = F.softmax(x.expand(3, 2, 4, 8), dim=3)
        i = F.softmax(x.permute(0, 2, 1) + torch.zeros(1, 1, 1, 1), dim=2)
        j = F.softmax(x.view(2, 4, 8) + x.new_zeros(5, 1, 1, 1), dim=2)
        return a, b, c, d, e, f, g, h, i, j
