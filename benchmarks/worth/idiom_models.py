"""Models written as people write them, each with the best rewrite of it by hand.

`BY_HAND` names for each class the one that computes the same with the rewrites that pay on a CPU.
`run.py` measures how much of the gain of these Regraft finds by itself. The list was written
before anything was measured.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

Model = tuple[nn.Module, dict[str, Any]]  # a model and the keywords of its call


class SelectiveScan(nn.Module):
    """A state-space layer: a state decays by input-dependent rates, step after step."""

    def __init__(self, width: int = 128, states: int = 16) -> None:
        super().__init__()
        self.rates = nn.Linear(width, width)
        self.inputs = nn.Linear(width, 2 * states)
        self.logs = nn.Parameter(torch.rand(width, states))
        self.out = nn.Linear(width, width)

    def scan_inputs(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        steps = F.softplus(self.rates(x))
        keys, queries = self.inputs(x).chunk(2, -1)
        decays = torch.exp(-steps[..., None] * self.logs.exp())
        return decays, (steps * x)[..., None] * keys[:, :, None], queries

    def forward(self, x: Tensor) -> Tensor:
        decays, updates, queries = self.scan_inputs(x)
        state = torch.zeros_like(decays[:, 0])
        outputs = []
        for t in range(x.shape[1]):
            state = decays[:, t] * state + updates[:, t]
            outputs.append((state * queries[:, t, None]).sum(-1))
        return self.out(torch.stack(outputs, 1))


class SelectiveScanByHand(SelectiveScan):
    def forward(self, x: Tensor) -> Tensor:
        decays, updates, queries = self.scan_inputs(x)
        state = torch.zeros_like(decays[:, 0])
        outputs = []
        steps = zip(decays.unbind(1), updates.unbind(1), queries.unbind(1), strict=True)
        for decay, update, query in steps:
            state = decay * state + update
            outputs.append((state * query[:, None]).sum(-1))
        return self.out(torch.stack(outputs, 1))


class CellReader(nn.Module):
    """A classifier of sequences that calls an LSTM cell in each step."""

    def __init__(self, width: int = 128, classes: int = 10) -> None:
        super().__init__()
        self.embed = nn.Embedding(1000, width)
        self.cell = nn.LSTMCell(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        h = x.new_zeros(x.shape[0], self.cell.hidden_size)
        c = torch.zeros_like(h)
        outputs = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            outputs.append(h)
        return self.head(torch.stack(outputs, 1).mean(1))


class CellReaderByHand(CellReader):
    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        zeros = x.new_zeros(1, x.shape[0], self.cell.hidden_size)
        cell = self.cell
        weights = [cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh]
        outputs = torch.lstm(x, (zeros, zeros), weights, True, 1, 0.0, self.training, False, True)[
            0
        ]
        return self.head(outputs.mean(1))


class Quantizer(nn.Module):
    """The middle of an autoencoder that chooses the nearest vector of a code book."""

    def __init__(self, width: int = 64, codes: int = 512) -> None:
        super().__init__()
        self.encode = nn.Linear(width, width)
        self.codes = nn.Parameter(torch.randn(codes, width))
        self.decode = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        z = self.encode(x)
        distances = ((z[:, None] - self.codes[None]) ** 2).sum(-1)
        chosen = distances.argmin(-1)
        one_hot = F.one_hot(chosen, self.codes.shape[0]).to(z.dtype)
        quantized = one_hot @ self.codes
        loss = F.mse_loss(quantized, z.detach()) + 0.25 * F.mse_loss(z, quantized.detach())
        return self.decode(z + (quantized - z).detach()).pow(2).mean() + loss


class QuantizerByHand(Quantizer):
    def forward(self, x: Tensor) -> Tensor:
        z = self.encode(x)
        with torch.no_grad():
            squares = self.codes.pow(2).sum(-1)
            chosen = torch.addmm(squares, z, self.codes.T, alpha=-2).argmin(-1)
        quantized = F.embedding(chosen, self.codes)
        loss = F.mse_loss(quantized, z.detach()) + 0.25 * F.mse_loss(z, quantized.detach())
        return self.decode(z + (quantized - z).detach()).pow(2).mean() + loss


class Prototypes(nn.Module):
    """A classifier by the distance to the mean of each class."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 64))

    def forward(self, shots: Tensor, queries: Tensor, labels: Tensor) -> Tensor:
        prototypes = self.encode(shots).mean(1)
        points = self.encode(queries)
        distances = ((points.unsqueeze(1) - prototypes.unsqueeze(0)) ** 2).sum(2)
        return F.cross_entropy(-distances, labels)


class PrototypesByHand(Prototypes):
    def forward(self, shots: Tensor, queries: Tensor, labels: Tensor) -> Tensor:
        prototypes = self.encode(shots).mean(1)
        points = self.encode(queries)
        squares = points.pow(2).sum(1, keepdim=True) + prototypes.pow(2).sum(1)
        return F.cross_entropy(2 * points @ prototypes.T - squares, labels)


class Contrast(nn.Module):
    """Two views of each sample, which have to be more alike than those of different samples."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.encode = nn.Sequential(nn.Linear(width, 256), nn.ReLU(), nn.Linear(256, 128))

    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        a, b = self.encode(first), self.encode(second)
        similarity = F.cosine_similarity(a.unsqueeze(1), b.unsqueeze(0), dim=-1) / 0.1
        return F.cross_entropy(similarity, torch.arange(len(a), device=a.device))


class ContrastByHand(Contrast):
    def forward(self, first: Tensor, second: Tensor) -> Tensor:
        a, b = F.normalize(self.encode(first), dim=-1), F.normalize(self.encode(second), dim=-1)
        return F.cross_entropy(a @ b.T / 0.1, torch.arange(len(a), device=a.device))


class GraphAttention(nn.Module):
    """Attention over the nodes of a dense graph, with scores of concatenated pairs."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.transform = nn.Linear(width, width, bias=False)
        self.score = nn.Linear(2 * width, 1, bias=False)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        h = self.transform(x)
        n = h.shape[0]
        pairs = torch.cat(
            [h.unsqueeze(1).expand(n, n, -1), h.unsqueeze(0).expand(n, n, -1)], dim=-1
        )
        scores = F.leaky_relu(self.score(pairs).squeeze(-1), 0.2)
        weights = scores.masked_fill(adjacency == 0, -9e15).softmax(-1)
        return F.elu(weights @ h)


class GraphAttentionByHand(GraphAttention):
    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        h = self.transform(x)
        own, other = self.score.weight.view(2, -1)
        scores = F.leaky_relu((h @ own).unsqueeze(1) + (h @ other).unsqueeze(0), 0.2)
        weights = scores.masked_fill(adjacency == 0, -9e15).softmax(-1)
        return F.elu(weights @ h)


class EdgeMessages(nn.Module):
    """Messages along the edges of a graph, of both ends of each edge."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.message = nn.Linear(2 * width, width)
        self.update = nn.Linear(2 * width, width)

    def forward(self, x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        edges = torch.cat([x[rows], x[columns]], dim=-1)
        messages = F.silu(self.message(edges))
        received = torch.zeros_like(x).index_add(0, rows, messages)
        return x + self.update(torch.cat([x, received], dim=-1))


class EdgeMessagesByHand(EdgeMessages):
    def forward(self, x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
        own, other = self.message.weight.chunk(2, 1)
        messages = F.silu(F.linear(x, own, self.message.bias)[rows] + F.linear(x, other)[columns])
        received = torch.zeros_like(x).index_add(0, rows, messages)
        return x + self.update(torch.cat([x, received], dim=-1))


class Neighbours(nn.Module):
    """A layer over the nearest neighbours of each point of a cloud."""

    def __init__(self, width: int = 64, nearest: int = 16) -> None:
        super().__init__()
        self.nearest = nearest
        self.embed = nn.Linear(3, width)
        self.edge = nn.Linear(2 * width, width)

    def forward(self, points: Tensor) -> Tensor:
        distances = ((points[:, :, None] - points[:, None]) ** 2).sum(-1)
        nearest = distances.sort(-1)[1][..., : self.nearest]
        x = self.embed(points)
        batch = torch.arange(len(x), device=x.device)[:, None, None]
        around = x[batch, nearest]
        centre = x.unsqueeze(2).expand(-1, -1, self.nearest, -1)
        return F.relu(self.edge(torch.cat([centre, around - centre], dim=-1))).amax(2)


class NeighboursByHand(Neighbours):
    def forward(self, points: Tensor) -> Tensor:
        with torch.no_grad():
            nearest = torch.cdist(points, points).topk(self.nearest, -1, largest=False)[1]
        x = self.embed(points)
        batch = torch.arange(len(x), device=x.device)[:, None, None]
        own, other = self.edge.weight.chunk(2, 1)
        centre = F.linear(x, own - other, self.edge.bias)
        around = F.linear(x, other)[batch, nearest]
        return F.relu(centre.unsqueeze(2) + around).amax(2)


class GraphConvolution(nn.Module):
    """Convolutions over a graph whose adjacency is normalised by the degrees of its nodes."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.first = nn.Linear(width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        scale = torch.diag(adjacency.sum(1).pow(-0.5))
        normalised = scale @ adjacency @ scale
        return self.second(normalised @ F.relu(self.first(normalised @ x)))


class GraphConvolutionByHand(GraphConvolution):
    def forward(self, x: Tensor, adjacency: Tensor) -> Tensor:
        scale = adjacency.sum(1).pow(-0.5)
        normalised = scale[:, None] * adjacency * scale
        return self.second(normalised @ F.relu(self.first(normalised @ x)))


class Captioner(nn.Module):
    """A decoder that attends to the regions of a picture in each step."""

    def __init__(self, width: int = 128, words: int = 500) -> None:
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.regions = nn.Linear(width, width)
        self.query = nn.Linear(width, width)
        self.score = nn.Linear(width, 1)
        self.cell = nn.LSTMCell(2 * width, width)
        self.head = nn.Linear(width, words)

    def forward(self, regions: Tensor, ids: Tensor) -> Tensor:
        h = regions.mean(1)
        c = torch.zeros_like(h)
        words = self.embed(ids)
        outputs = []
        for t in range(ids.shape[1]):
            keys = self.regions(regions)
            scores = self.score(torch.relu(keys + self.query(h).unsqueeze(1))).squeeze(2)
            context = (scores.softmax(1).unsqueeze(2) * regions).sum(1)
            h, c = self.cell(torch.cat([words[:, t], context], 1), (h, c))
            outputs.append(self.head(h))
        return torch.stack(outputs, 1)


class CaptionerByHand(Captioner):
    def forward(self, regions: Tensor, ids: Tensor) -> Tensor:
        h = regions.mean(1)
        c = torch.zeros_like(h)
        keys = self.regions(regions)
        states = []
        for word in self.embed(ids).unbind(1):
            scores = self.score(torch.relu(keys + self.query(h).unsqueeze(1)))
            context = (scores.softmax(1).transpose(1, 2) @ regions).squeeze(1)
            h, c = self.cell(torch.cat([word, context], 1), (h, c))
            states.append(h)
        return self.head(torch.stack(states, 1))


class Returns(nn.Module):
    """A critic whose targets are discounted sums of rewards and predicted values."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.value = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, 1))
        self.reward = nn.Linear(width, 1)

    def forward(self, states: Tensor, discounts: Tensor) -> Tensor:
        values, rewards = self.value(states).squeeze(-1), self.reward(states).squeeze(-1)
        total = torch.zeros_like(values[:, 0])
        totals = []
        for t in range(states.shape[1]):
            total = discounts[:, t] * total + rewards[:, t]
            totals.append(total)
        return F.mse_loss(values, torch.stack(totals, 1))


class ReturnsByHand(Returns):
    def forward(self, states: Tensor, discounts: Tensor) -> Tensor:
        values, rewards = self.value(states).squeeze(-1), self.reward(states).squeeze(-1)
        total = torch.zeros_like(values[:, 0])
        totals = []
        for discount, reward in zip(discounts.unbind(1), rewards.unbind(1), strict=True):
            total = discount * total + reward
            totals.append(total)
        return F.mse_loss(values, torch.stack(totals, 1))


class Smoothed(nn.Module):
    """A classifier with labels that are smoothed by hand."""

    def __init__(self, width: int = 128, classes: int = 5000) -> None:
        super().__init__()
        self.classes = classes
        self.head = nn.Linear(width, classes)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        scores = F.log_softmax(self.head(x), dim=-1)
        one_hot = F.one_hot(labels, self.classes).to(scores.dtype)
        return -(one_hot * scores).sum(-1).mean()


class SmoothedByHand(Smoothed):
    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(self.head(x), labels)


BY_HAND: dict[type[nn.Module], type[nn.Module]] = {
    SelectiveScan: SelectiveScanByHand,
    CellReader: CellReaderByHand,
    Quantizer: QuantizerByHand,
    Prototypes: PrototypesByHand,
    Contrast: ContrastByHand,
    GraphAttention: GraphAttentionByHand,
    EdgeMessages: EdgeMessagesByHand,
    Neighbours: NeighboursByHand,
    GraphConvolution: GraphConvolutionByHand,
    Captioner: CaptionerByHand,
    Returns: ReturnsByHand,
    Smoothed: SmoothedByHand,
}


def adjacency(nodes: int) -> Tensor:
    """Return the adjacency of a random graph, (nodes, nodes), with an edge from each node to
    itself."""
    return ((torch.rand(nodes, nodes) < 0.05) | torch.eye(nodes, dtype=torch.bool)).float()


def selective_scan() -> Model:
    return SelectiveScan(), {"x": torch.randn(1, 256, 128)}


def cell_reader() -> Model:
    return CellReader(), {"ids": torch.randint(1000, (16, 128))}


def quantizer() -> Model:
    return Quantizer(), {"x": torch.randn(1024, 64)}


def prototypes() -> Model:
    shots, queries = torch.randn(100, 5, 128), torch.randn(1500, 128)
    return Prototypes(), {"shots": shots, "queries": queries, "labels": torch.arange(1500) % 100}


def contrast() -> Model:
    return Contrast(), {"first": torch.randn(256, 128), "second": torch.randn(256, 128)}


def graph_attention() -> Model:
    return GraphAttention(), {"x": torch.randn(500, 32), "adjacency": adjacency(500)}


def edge_messages() -> Model:
    rows, columns = torch.randint(1000, (2, 20000))
    return EdgeMessages(), {"x": torch.randn(1000, 64), "rows": rows, "columns": columns}


def neighbours() -> Model:
    return Neighbours(), {"points": torch.rand(4, 512, 3)}


def graph_convolution() -> Model:
    return GraphConvolution(), {"x": torch.randn(1000, 64), "adjacency": adjacency(1000)}


def captioner() -> Model:
    regions, ids = torch.randn(8, 196, 128), torch.randint(500, (8, 20))
    return Captioner(), {"regions": regions, "ids": ids}


def returns() -> Model:
    return Returns(), {"states": torch.randn(64, 256, 32), "discounts": torch.rand(64, 256)}


def smoothed() -> Model:
    return Smoothed(), {"x": torch.randn(512, 128), "labels": torch.randint(5000, (512,))}
