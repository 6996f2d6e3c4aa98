"""Feed-forward halves of transformer layers: norms, activations, residuals, dropout."""

import torch
import torch.nn.functional as F
from torch import nn

ACTIVATIONS = {"gelu": F.gelu, "relu": F.relu, "silu": F.silu}


class SelfOutput(nn.Module):
    """As in BERT: projection, dropout, residual, LayerNorm."""

    def __init__(self, hidden_size=32, eps=1e-12, p=0.1):
        super().__init__()
        self.dense = nn.Linear(hidden_size, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=eps)
        self.dropout = nn.Dropout(p)

    def forward(self, hidden_states, residual):
        hidden_states = self.dropout(self.dense(hidden_states))
        return self.norm(hidden_states + residual)


class PreNorm(nn.Module):
    """As in GPT: the residual skips the norm."""

    def __init__(self, hidden_size=32, p=0.1):
        super().__init__()
        self.norm = nn.LayerNorm(hidden_size)
        self.up = nn.Linear(hidden_size, 2 * hidden_size)
        self.down = nn.Linear(2 * hidden_size, hidden_size)
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        h = self.norm(x)
        h = self.down(F.gelu(self.up(h), approximate="tanh"))
        return x + self.dropout(h)


class RMSNorm(nn.Module):
    """As in LLaMA: statistics in float32, the weight applied in the dtype of the input."""

    def __init__(self, hidden_size=32, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(hidden_size))
        self.eps = eps

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        variance = x.pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + self.eps)
        return self.weight * x.to(dtype)


class GatedMLP(nn.Module):
    """As in LLaMA: a gate of its own, no biases."""

    def __init__(self, hidden_size=32, inner=48):
        super().__init__()
        self.gate_proj = nn.Linear(hidden_size, inner, bias=False)
        self.up_proj = nn.Linear(hidden_size, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden_size, bias=False)
        self.act = nn.SiLU()

    def forward(self, x):
        return self.down_proj(self.act(self.gate_proj(x)) * self.up_proj(x))


class Configured(nn.Module):
    """The configuration chooses the activation; the biases are learned apart."""

    def __init__(self, hidden_size=32, activation="relu"):
        super().__init__()
        self.activation = ACTIVATIONS[activation]
        self.dense = nn.Linear(hidden_size, hidden_size, bias=False)
        self.bias = nn.Parameter(torch.zeros(hidden_size))
        self.scale = nn.Parameter(torch.ones(hidden_size))

    def forward(self, x):
        h = self.dense(x) + self.bias
        return self.activation(h) * self.scale


class TwoDropouts(nn.Module):
    """Two branches, each with a mask of its own."""

    def __init__(self, hidden_size=32, p=0.2):
        super().__init__()
        self.left = nn.Linear(hidden_size, hidden_size)
        self.right = nn.Linear(hidden_size, hidden_size)
        self.dropout = nn.Dropout(p)

    def forward(self, x):
        left = self.dropout(self.left(x))
        right = self.dropout(self.right(x))
        return left * 2 + right


class Auxiliary(nn.Module):
    """Hands on more than one result: a list of states, a number, and a loss that needs
    gradients."""

    def __init__(self, hidden_size=32):
        super().__init__()
        self.first = nn.Linear(hidden_size, hidden_size)
        self.second = nn.Linear(hidden_size, hidden_size)

    def forward(self, x):
        states = [x]
        states.append(torch.tanh(self.first(states[-1])))
        states.append(torch.tanh(self.second(states[-1])))
        penalty = sum(state.pow(2).mean() for state in states)
        return {"last": states[-1], "states": states, "penalty": penalty, "length": x.shape[1]}


class Routed(nn.Module):
    """Gives each position to the layer of its index; the index beyond the last layer
    chooses none."""

    def __init__(self, hidden_size=32, layers=3):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(hidden_size, hidden_size) for _ in range(layers)])

    def forward(self, x, index):
        result = torch.zeros_like(x)
        for number in index.unique().tolist():
            rows = index == number
            if number == len(self.layers):
                continue
            result[rows] = self.layers[number](x[rows])
        return result
