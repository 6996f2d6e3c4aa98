"""The subjects of pack `idioms`."""

from subjects import Size, Subject, scaled

POINTS = scaled(
    {"points": 32, "others": 16, "width": 8},
    {"points": 1024, "others": 256, "width": 64},
    {"points": 1024, "others": 1024, "width": 64},
)
POINTS_SHAPE = "{points} x {others} x {width}"
CLOUDS = scaled(
    {"batch": 2, "points": 16, "others": 16, "width": 3},
    {"batch": 4, "points": 1024, "others": 1024, "width": 3},
    {"batch": 4, "points": 2048, "others": 2048, "width": 3},
)
CLOUDS_SHAPE = "{batch} x {points} x {others} x {width}"
MATRICES = scaled(
    {"rows": 32, "width": 16},
    {"rows": 512, "width": 256},
    {"rows": 2048, "width": 1024},
)
MATRICES_SHAPE = "{rows} x {width}"
LOOK_UP = scaled(
    {"rows": 32, "classes": 18, "width": 16},
    {"rows": 1024, "classes": 512, "width": 64},
    {"rows": 4096, "classes": 8192, "width": 256},
)
LOOK_UP_SHAPE = "{rows} of {classes} x {width}"
BATCHES = scaled(
    {"rows": 32, "classes": 10},
    {"rows": 512, "classes": 1000},
    {"rows": 512, "classes": 50_257},
)
BATCHES_SHAPE = "{rows} x {classes}"
STEPS = scaled(
    {"batch": 4, "length": 16, "width": 32},
    {"batch": 8, "length": 128, "width": 256},
    {"batch": 8, "length": 512, "width": 256},
)
STEPS_SHAPE = "{batch} x {length} x {width}"
QUERIES = scaled(
    {"batch": 4, "length": 8, "width": 32},
    {"batch": 32, "length": 50, "width": 256},
    {"batch": 64, "length": 200, "width": 512},
)
OBJECTS = scaled(
    {"batch": 2, "objects": 8, "width": 32},
    {"batch": 8, "objects": 32, "width": 128},
    {"batch": 16, "objects": 64, "width": 256},
)
EDGES = scaled(
    {"nodes": 32, "edges": 160, "width": 32},
    {"nodes": 512, "edges": 8192, "width": 64},
    {"nodes": 2048, "edges": 32_768, "width": 128},
)


IMAGES = scaled(
    {"batch": 2, "channels": 16, "side": 8},
    {"batch": 8, "channels": 64, "side": 56},
    {"batch": 16, "channels": 192, "side": 56},
)
IMAGES_SHAPE = "{batch} x {channels} x {side} x {side}"
# a normalisation over DIMS by hand, whose variance is VARIANCE
# a scan, of which one rule takes the slices before the loop, and another computes the states
SCAN_TEXT = """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gate = nn.Linear(width, width)

    def forward(self, x):
        decay, state = torch.sigmoid(self.gate(x)), torch.zeros_like(x[:, 0])
        states = []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + x[:, t]
            states.append(state)
        return torch.stack(states, 1)


def inputs(batch, length, width):
    return (torch.randn(batch, length, width),)
"""
HAND_NORM_TEXT = """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1, channels, 1, 1))
        self.bias = nn.Parameter(torch.zeros(1, channels, 1, 1))

    def forward(self, x):
        mean = x.mean(DIMS, keepdim=True)
        variance = VARIANCE
        return (x - mean) / torch.sqrt(variance + 1e-5) * self.weight + self.bias


def inputs(batch, channels, side):
    return (torch.randn(batch, channels, side, side),)
"""


# patches of videos and of images, as rows of pixels
PATCHES = scaled(
    {"patches": 16, "width": 64, "side": 8},
    {"patches": 256, "width": 768, "side": 14},
    {"patches": 1024, "width": 1280, "side": 14},
)
PATCHES_SHAPE = "{patches} patches of {side} x {side} -> {width}"
PATCHES_TEXT = """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, side):
        super().__init__()
        self.side = side
        self.width = width
        self.proj = nn.CONV(3, width, kernel_size=KERNEL, stride=KERNEL)

    def forward(self, rows):
        return self.proj(rows.view(-1, 3, SIZES)).view(-1, self.width)


def inputs(patches, side):
    return (torch.randn(patches, 3 * FRAMES * side * side),)
"""


def patches_text(**words: str) -> str:
    """Return the text of an embedding of patches with some words replaced."""
    text = PATCHES_TEXT
    for word, replacement in words.items():
        text = text.replace(word, replacement)
    return text


# heads of keys for groups of queries: of a prompt, and in a step of decoding
GROUPED = scaled(
    {"heads": 8, "groups": 2, "length": 32, "width": 16},
    {"heads": 16, "groups": 4, "length": 512, "width": 64},
    {"heads": 32, "groups": 8, "length": 2048, "width": 64},
)
GROUPED_SHAPE = "{heads} / {groups} heads x {length} x {width}"
GROUPED_TEXT = """
import torch
from torch import nn
from torch.nn import functional as F


class Subject(nn.Module):
    def __init__(self, heads, groups):
        super().__init__()
        self.count = heads // groups

    def forward(self, q, k, v):
        k = k.repeat_interleave(self.count, dim=1)
        v = v.repeat_interleave(self.count, dim=1)
        return F.scaled_dot_product_attention(q, k, vOPTIONS)


def inputs(heads, groups, length, width):
    keys = (1, groups, length, width)
    return torch.randn(1, heads, QUERIES, width), torch.randn(keys), torch.randn(keys)
"""


# convolutions by hand, whose columns are multiplied by kernels
UNFOLDED = scaled(
    {"batch": 2, "channels": 16, "side": 16},
    {"batch": 8, "channels": 64, "side": 32},
    {"batch": 8, "channels": 128, "side": 56},
)
UNFOLDED_SHAPE = "{batch} x {channels} x {side} x {side}, kernels of 3 x 3"
UNFOLDED_TEXT = """
import torch
import torch.nn.functional as F
from torch import nn


class Subject(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.channels = channels
        self.weight = nn.Parameter(torch.randn(channels, channels, 3, 3) / (3 * channels**0.5))

    def forward(self, x):
        batch, channels, height, width = x.shape
        columns = F.unfold(x, 3, padding=1)
        PRODUCT


def inputs(batch, channels, side):
    return (torch.randn(batch, channels, side, side),)
"""
UNFOLDED_PRODUCTS = {
    "kernels first": """out = self.weight.view(self.channels, -1) @ columns
        return out.view(batch, -1, height, width)""",
    "folded": """weight = self.weight.view(self.channels, -1)
        out = columns.transpose(1, 2).matmul(weight.t()).transpose(1, 2)
        return F.fold(out, (height, width), (1, 1))""",
    "positions first": """weight = self.weight.view(self.channels, -1)
        return columns.transpose(1, 2) @ weight.t()""",
}


# a recurrent network of one cell
CELL_TEXT = """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.LSTMCell(width, width)

    def forward(self, x, h):
        c = torch.zeros_like(h)
        outputs = []
        for t in range(x.shape[1]):
            h, c = self.cell(x[:, t], (h, c))
            outputs.append(h)
        return torch.stack(outputs, dim=1), (h, c)


def inputs(batch, length, width):
    return torch.randn(batch, length, width), torch.randn(batch, width)
"""

# the delta rule in chunks of 64 tokens
CHUNKS = scaled(
    {"heads": 2, "length": 64, "width": 32},
    {"heads": 8, "length": 512, "width": 64},
    {"heads": 16, "length": 2048, "width": 128},
)
CHUNKS_SHAPE = "{heads} heads x {length} x {width}"
CHUNKS_TEXT = """
import torch
import torch.nn.functional as F
from torch import nn


class Subject(nn.Module):
    def forward(self, key, value, beta):
        chunk_size = 64
        sizes = *key.shape[:-2], -1, chunk_size, key.shape[-1]
        key = F.normalize(key, dim=-1).reshape(sizes)
        v_beta = (value * beta).reshape(sizes)
        k_beta = key * beta.reshape(*sizes[:-1], 1)
        mask = torch.triu(torch.ones(chunk_size, chunk_size, dtype=torch.bool))
        attn = -(k_beta @ key.transpose(-1, -2)).masked_fill(mask, 0)
        for i in range(1, chunk_size):
            row = attn[..., i, :i].clone()
            sub = attn[..., :i, :i].clone()
            attn[..., i, :i] = row + (row.unsqueeze(-1) * sub).sum(-2)
        attn = attn + torch.eye(chunk_size)
        return attn @ v_beta, attn @ k_beta


def inputs(heads, length, width):
    shape = 1, heads, length, width
    return torch.randn(shape), torch.randn(shape), torch.rand(1, heads, length, 1)
"""


def stateless(body: str, inputs: str, numbers: str, imports: str = "") -> str:
    """Return the text of a module without parameters, whose `forward` takes x and y."""
    return f"""
import torch
{imports}
from torch import nn


class Subject(nn.Module):
    def forward(self, x, y):
        {body}


def inputs({numbers}):
    return {inputs}
"""


PAIRS = ("torch.randn(points, width), torch.randn(others, width)", "points, others, width")
CLOUD_PAIRS = (
    "torch.randn(batch, points, width), torch.randn(batch, others, width)",
    "batch, points, others, width",
)
FUNCTIONAL = "import torch.nn.functional as F"


def diagonal(name: str, body: str, inputs: str) -> Subject:
    """Return a subject of a product with or of diagonals."""
    return Subject(
        "idioms/diagonal-algebra",
        MATRICES_SHAPE,
        MATRICES,
        stateless(body, inputs, "rows, width"),
        name=name,
    )


def classifier(small: Size, typical: Size, large: Size, name: str, text: str) -> Subject:
    """Return a subject that reads the result of a layer at the last position."""
    return Subject(
        "idioms/last-position",
        "{batch} x {length} x {width} -> {classes}",
        scaled(small, typical, large),
        text,
        name=name,
    )


SUBJECTS = [
    diagonal("diag @", "return torch.diag(x) @ y", "torch.rand(rows), torch.randn(rows, rows)"),
    diagonal(
        "@ diag", "return torch.mm(x, torch.diag(y))", "torch.randn(rows, width), torch.rand(width)"
    ),
    diagonal(
        "diagonal",
        "scores = torch.matmul(x, y.t())\n        return torch.diagonal(scores)",
        "torch.randn(rows, width), torch.randn(rows, width)",
    ),
    diagonal(
        "trace",
        "return torch.trace(x.t() @ y @ x)",
        "torch.randn(rows, width), torch.randn(rows, rows)",
    ),
    classifier(
        {"batch": 4, "length": 8, "width": 32, "classes": 10},
        {"batch": 32, "length": 28, "width": 128, "classes": 10},
        {"batch": 16, "length": 256, "width": 256, "classes": 1000},
        "after LSTM",
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.lstm = nn.LSTM(28, width, batch_first=True)
        self.fc = nn.Linear(width, classes)

    def forward(self, x):
        out, _ = self.lstm(x)
        out = self.fc(out)
        return out[:, -1, :]


def inputs(batch, length):
    return (torch.randn(batch, length, 28),)
""",
    ),
    classifier(
        {"batch": 2, "length": 16, "width": 32, "classes": 100},
        {"batch": 1, "length": 256, "width": 512, "classes": 32_000},
        {"batch": 1, "length": 512, "width": 768, "classes": 50_257},
        "language model",
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.head = nn.Linear(width, classes, bias=False)

    def forward(self, hidden):
        return torch.softmax(self.head(hidden)[:, -1], dim=-1)


def inputs(batch, length, width):
    return (torch.randn(batch, length, width),)
""",
    ),
    Subject(
        "idioms/linear-before-expand",
        "{batch} x {length} x {width}",
        QUERIES,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attn = nn.Linear(2 * width, width)
        self.v = nn.Linear(width, 1, bias=False)

    def forward(self, hidden, outputs):
        hidden = hidden.unsqueeze(1).repeat(1, outputs.shape[1], 1)
        energy = torch.tanh(self.attn(torch.cat((hidden, outputs), dim=2)))
        return torch.softmax(self.v(energy).squeeze(2), dim=1)


def inputs(batch, length, width):
    return torch.randn(batch, width), torch.randn(batch, length, width)
""",
        name="additive attention",
    ),
    Subject(
        "idioms/linear-before-expand",
        "{batch} x {objects} x {width}",
        OBJECTS,
        """
import torch
import torch.nn.functional as F
from torch import nn


class Subject(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first = nn.Linear(2 * width, width)
        self.second = nn.Linear(width, width)

    def forward(self, x):
        b, n, d = x.shape
        rows = x.unsqueeze(2).expand(b, n, n, d)
        columns = x.unsqueeze(1).expand(b, n, n, d)
        pairs = torch.cat([rows, columns], dim=-1)
        return F.relu(self.second(F.relu(self.first(pairs)))).sum((1, 2))


def inputs(batch, objects, width):
    return (torch.randn(batch, objects, width),)
""",
        name="pairs of objects",
    ),
    Subject(
        "idioms/linear-before-expand",
        "{nodes} nodes, {edges} edges, {width}",
        EDGES,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(2 * width + 1, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU()
        )

    def forward(self, h, row, col, distance):
        edges = self.mlp(torch.cat([h[row], h[col], distance], dim=1))
        return torch.zeros_like(h).index_add(0, row, edges)


def inputs(nodes, edges, width):
    row, col = torch.randint(nodes, (2, edges))
    return torch.randn(nodes, width), row, col, torch.rand(edges, 1)
""",
        name="edges of a graph",
    ),
    Subject(
        "idioms/need-weights",
        "{batch} x {length} x {width}, {heads} heads",
        scaled(
            {"batch": 2, "length": 16, "width": 32, "heads": 4},
            {"batch": 4, "length": 256, "width": 512, "heads": 8},
            {"batch": 2, "length": 1024, "width": 256, "heads": 8},
        ),
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, heads)

    def forward(self, x):
        h = self.norm(x)
        h, _ = self.attn(h, h, h)
        return x + h


def inputs(batch, length, width):
    return (torch.randn(length, batch, width),)
""",
        name="self-attention",
    ),
    Subject(
        "idioms/need-weights",
        "{batch} x {queries} of {length} x {width}, {heads} heads",
        scaled(
            {"batch": 2, "queries": 8, "length": 32, "width": 32, "heads": 4},
            {"batch": 2, "queries": 100, "length": 1000, "width": 256, "heads": 8},
            {"batch": 2, "queries": 300, "length": 4000, "width": 256, "heads": 8},
        ),
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, queries, memory, padding):
        return self.attn(query=queries, key=memory, value=memory, key_padding_mask=padding)[0]


def inputs(batch, queries, length, width):
    padding = torch.arange(length) >= torch.tensor([[length], [3 * length // 4]])
    return torch.randn(batch, queries, width), torch.randn(batch, length, width), padding
""",
        name="cross-attention, padded",
    ),
    Subject(
        "idioms/one-hot-matmul",
        LOOK_UP_SHAPE,
        LOOK_UP,
        """
import torch
import torch.nn.functional as F
from torch import nn


class Subject(nn.Module):
    def __init__(self, classes, width):
        super().__init__()
        self.size = classes
        self.embedding = nn.Embedding(classes, width)

    def forward(self, index):
        hot = F.one_hot(index, self.size).to(self.embedding.weight.dtype)
        return hot @ self.embedding.weight


def inputs(rows, classes):
    return (torch.randint(classes, (rows,)),)
""",
    ),
    Subject(
        "idioms/one-hot-loss",
        BATCHES_SHAPE,
        BATCHES,
        """
import torch
import torch.nn.functional as F
from torch import nn


class Subject(nn.Module):
    def forward(self, pred, gold):
        eps, n_class = 0.2, pred.size(1)
        one_hot = torch.zeros_like(pred).scatter(1, gold.view(-1, 1), 1)
        one_hot = one_hot * (1 - eps) + (1 - one_hot) * eps / (n_class - 1)
        log_prb = F.log_softmax(pred, dim=1)
        return -(one_hot * log_prb).sum(dim=1).mean()


def inputs(rows, classes):
    return torch.randn(rows, classes), torch.randint(classes, (rows,))
""",
    ),
    Subject(
        "idioms/one-hot-select",
        BATCHES_SHAPE,
        BATCHES,
        """
import torch
import torch.nn.functional as F
from torch import nn


class Subject(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.classes = classes

    def forward(self, logits, labels):
        hot = F.one_hot(labels, self.classes).float()
        scores = F.log_softmax(logits, dim=-1)
        return -torch.sum(hot * scores, dim=-1).mean()


def inputs(rows, classes):
    return torch.randn(rows, classes), torch.randint(classes, (rows,))
""",
        name="cross entropy",
    ),
    Subject(
        "idioms/one-hot-select",
        BATCHES_SHAPE,
        scaled(
            {"rows": 32, "classes": 4},
            {"rows": 256, "classes": 18},
            {"rows": 4096, "classes": 1000},
        ),
        """
import torch
import torch.nn.functional as F
from torch import nn


class Subject(nn.Module):
    def __init__(self, classes):
        super().__init__()
        self.actions = classes

    def forward(self, q, action):
        return (q * F.one_hot(action, self.actions)).sum(-1)


def inputs(rows, classes):
    return torch.randn(rows, classes), torch.randint(classes, (rows,))
""",
        name="value of an action",
    ),
    Subject(
        "idioms/pairwise-distance",
        POINTS_SHAPE,
        POINTS,
        stateless("return ((x[:, None] - y[None]) ** 2).sum(-1)", *PAIRS),
        name="squared",
    ),
    Subject(
        "idioms/pairwise-distance",
        CLOUDS_SHAPE,
        CLOUDS,
        stateless("return torch.norm(x[:, :, None] - y[:, None], dim=-1)", *CLOUD_PAIRS),
        name="norm, clouds",
    ),
    Subject(
        "idioms/pairwise-product",
        POINTS_SHAPE,
        POINTS,
        stateless("return (x.unsqueeze(1) * y.unsqueeze(0)).sum(-1)", *PAIRS),
        name="product",
    ),
    Subject(
        "idioms/pairwise-product",
        POINTS_SHAPE,
        POINTS,
        stateless(
            "return F.cosine_similarity(x[:, None, :], y[None, :, :], dim=-1) / 0.1",
            *PAIRS,
            imports=FUNCTIONAL,
        ),
        name="cosine",
    ),
    Subject(
        "idioms/sorted-head",
        "{first} of {rows} x {classes}",
        scaled(
            {"rows": 4, "classes": 32, "first": 4},
            {"rows": 64, "classes": 1000, "first": 16},
            {"rows": 64, "classes": 50_257, "first": 50},
        ),
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.first = first

    def forward(self, scores):
        return torch.sort(scores, dim=-1, descending=True)[0][:, : self.first]


def inputs(rows, classes):
    return (torch.randn(rows, classes),)
""",
    ),
    Subject(
        "idioms/sorted-indices",
        "{first} nearest of {points} points, {batch} clouds",
        scaled(
            {"batch": 2, "points": 48, "first": 4},
            {"batch": 4, "points": 512, "first": 16},
            {"batch": 4, "points": 2048, "first": 32},
        ),
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, first):
        super().__init__()
        self.first = first

    def forward(self, points):
        distances = torch.cdist(points, points)
        nearest = distances.argsort()[:, :, : self.first]
        index = nearest.flatten(1)[..., None].expand(-1, -1, points.shape[-1])
        return points.gather(1, index)


def inputs(batch, points):
    return (torch.randn(batch, points, 3),)
""",
    ),
    Subject(
        "idioms/linear-recurrence",
        "{batch} x {width} x {length} x {states}",
        scaled(
            {"batch": 1, "width": 16, "length": 16, "states": 8},
            {"batch": 1, "width": 128, "length": 128, "states": 16},
            {"batch": 1, "width": 256, "length": 512, "states": 16},
        ),
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width, states):
        super().__init__()
        self.decay = nn.Parameter(torch.rand(width, states))

    def forward(self, step, x, readout, state):
        decay = torch.exp(-step.unsqueeze(-1) * self.decay[:, None, :])
        inputs = (step * x).unsqueeze(-1) * readout[:, None, :, :]
        outputs = []
        for t in range(x.shape[2]):
            state = decay[:, :, t, :] * state + inputs[:, :, t, :]
            outputs.append(torch.matmul(state, readout[:, t, :].unsqueeze(-1))[:, :, 0])
        return torch.stack(outputs, dim=-1)


def inputs(batch, width, length, states):
    return (
        torch.rand(batch, width, length),
        torch.randn(batch, width, length),
        torch.randn(batch, length, states),
        torch.zeros(batch, width, states),
    )
""",
        name="selective scan",
    ),
    Subject(
        "idioms/linear-recurrence",
        STEPS_SHAPE,
        STEPS,
        SCAN_TEXT,
        name="scan",
    ),
    Subject(
        "idioms/unbind-in-loop",
        STEPS_SHAPE,
        STEPS,
        SCAN_TEXT,
        name="scan",
    ),
    Subject(
        "idioms/unbind-in-loop",
        STEPS_SHAPE,
        STEPS,
        """
import torch
from torch import nn


class Subject(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.cell = nn.GRUCell(width, width)

    def forward(self, x, state):
        for t in range(x.size(1)):
            state = self.cell(x[:, t, :], state)
        return state


def inputs(batch, length, width):
    return torch.randn(batch, length, width), torch.randn(batch, width)
""",
        name="GRU cell",
    ),
    *(
        Subject(
            "idioms/hand-norm",
            IMAGES_SHAPE,
            IMAGES,
            HAND_NORM_TEXT.replace("DIMS", dims).replace("VARIANCE", computed),
            name=name,
        )
        for name, dims, computed in (
            ("instances, var", "[2, 3]", "torch.var(x, [2, 3], keepdim=True)"),
            ("instances, squares", "(2, 3)", "((x - mean) ** 2).mean((2, 3), keepdim=True)"),
            ("batch, squares", "(0, 2, 3)", "((x - mean) ** 2).mean((0, 2, 3), keepdim=True)"),
        )
    ),
    Subject(
        "idioms/patch-conv",
        PATCHES_SHAPE,
        PATCHES,
        patches_text(
            CONV="Conv3d", KERNEL="(2, side, side)", SIZES="2, self.side, self.side", FRAMES="2"
        ),
        name="video",
    ),
    Subject(
        "idioms/patch-conv",
        PATCHES_SHAPE,
        PATCHES,
        patches_text(CONV="Conv2d", KERNEL="side", SIZES="self.side, self.side", FRAMES="1"),
        name="images",
    ),
    *(
        Subject(
            "idioms/grouped-heads",
            GROUPED_SHAPE,
            GROUPED,
            GROUPED_TEXT.replace("QUERIES", queries).replace("OPTIONS", options),
            name=name,
        )
        for name, queries, options in (
            ("prompt", "length", ", is_causal=True"),
            ("one step", "1", ""),
        )
    ),
    *(
        Subject(
            "idioms/unfold-conv",
            UNFOLDED_SHAPE,
            UNFOLDED,
            UNFOLDED_TEXT.replace("PRODUCT", product),
            name=name,
        )
        for name, product in UNFOLDED_PRODUCTS.items()
    ),
    Subject("idioms/recurrent-cell", STEPS_SHAPE, STEPS, CELL_TEXT),
    Subject("idioms/delta-rule", CHUNKS_SHAPE, CHUNKS, CHUNKS_TEXT),
]
