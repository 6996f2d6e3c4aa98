import torch
import torch.nn.functional as F


class Other:
    @staticmethod
    def softmax(x, dim):
        return x * 100


class M(torch.nn.Module):
    def forward(self, x, res):
        def run(F):
            def inner(y):
                return F.softmax(y, dim=-1)
            return inner(x)
        return run(Other)
