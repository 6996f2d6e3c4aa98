import torch; DOC = """first
last"""


class M(torch.nn.Module):
    def forward(self, x, res):
        return torch.softmax(x, dim=-1), len(DOC)
