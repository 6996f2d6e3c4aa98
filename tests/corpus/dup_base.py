import torch
import torch.nn as nn

FLAG = True
if FLAG:
    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.dense = nn.Linear(4, 4)
            self.act = nn.ReLU()
else:
    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.dense = nn.Linear(4, 4)
            self.act = nn.GELU()


class M(Base):
    def forward(self, x, res):
        return self.act(self.dense(x))
