"""Decoding loops, post-processing and solvers as a tutorial writes them, as part of the network.

`inputs(number)` gives the arguments of call `number`; the first ones are the examples.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn


class Block(nn.Module):
    """One layer of a small decoder."""

    def __init__(self, width, heads, block_size):
        super().__init__()
        self.n_head = heads
        self.ln_1 = nn.LayerNorm(width)
        self.c_attn = nn.Linear(width, 3 * width)
        self.c_proj = nn.Linear(width, width)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )
        mask = torch.tril(torch.ones(block_size, block_size)).view(1, 1, block_size, block_size)
        self.register_buffer("bias", mask)

    def attention(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
        att = F.softmax(att, dim=-1)
        y = att @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)

    def forward(self, x):
        x = x + self.attention(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x


class LanguageModel(nn.Module):
    """A decoder of two layers that generates until its end token."""

    def __init__(self, vocabulary=12, width=16, block_size=6):
        super().__init__()
        self.block_size = block_size
        self.eos = 3
        self.wte = nn.Embedding(vocabulary, width)
        self.wpe = nn.Embedding(block_size, width)
        self.h = nn.ModuleList([Block(width, 2, block_size) for _ in range(2)])
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        with torch.no_grad():
            self.lm_head.weight.mul_(5)

    @staticmethod
    def inputs(number):
        return (torch.randint(0, 12, (1, 2 + number % 5)),)

    def logits(self, idx, targets=None):
        b, t = idx.size()  # noqa: RUF059
        assert t <= self.block_size, f"Cannot forward sequence of length {t}"
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.wte(idx) + self.wpe(pos)
        for block in self.h:
            x = block(x)
        x = self.ln_f(x)
        if targets is not None:
            logits = self.lm_head(x)
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        else:
            logits = self.lm_head(x[:, [-1], :])
            loss = None
        return logits, loss


class GreedyGeneration(LanguageModel):
    @torch.no_grad()
    def forward(self, idx, max_new_tokens=6):
        for _ in range(max_new_tokens):
            idx_cond = idx[:, -self.block_size :]
            logits, _ = self.logits(idx_cond)
            logits = logits[:, -1, :]
            idx_next = torch.argmax(logits, dim=-1, keepdim=True)
            idx = torch.cat((idx, idx_next), dim=1)
            if idx_next.item() == self.eos:
                break
        return idx


class BlockSizeGeneration(LanguageModel):
    """The version of nanoGPT: crops only where the sequence is too long, stops by the token."""

    def forward(self, idx, max_new_tokens=6, temperature=1.0, top_k=None):
        return self.generate(idx, max_new_tokens, temperature, top_k)

    @torch.no_grad()
    def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
        for _ in range(max_new_tokens):
            idx_cond = idx if idx.size(1) <= self.block_size else idx[:, -self.block_size :]
            logits, _ = self.logits(idx_cond)
            logits = logits[:, -1, :] / temperature
            if top_k is not None:
                v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
                logits[logits < v[:, [-1]]] = -float("Inf")
            probs = F.softmax(logits, dim=-1)
            idx_next = torch.argmax(probs, dim=-1, keepdim=True)
            if (idx_next == self.eos).all():
                break
            idx = torch.cat((idx, idx_next), dim=1)
        return idx


class CachedAttention(nn.Module):
    """Attention that goes on from the keys and values of earlier tokens."""

    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x, past=None):
        B, T, C = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = q.view(B, T, self.heads, -1).transpose(1, 2)
        k = k.view(B, T, self.heads, -1).transpose(1, 2)
        v = v.view(B, T, self.heads, -1).transpose(1, 2)
        if past is not None:
            past_k, past_v = past
            k = torch.cat([past_k, k], dim=2)
            v = torch.cat([past_v, v], dim=2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=past is None and T > 1)
        y = y.transpose(1, 2).reshape(B, T, C)
        return self.out(y), (k, v)


class CachedGeneration(nn.Module):
    """Generates with a list of keys and values, one pair for each layer."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(12, 16)
        self.layers = nn.ModuleList([CachedAttention(16, 2) for _ in range(2)])
        self.norm = nn.LayerNorm(16)
        self.head = nn.Linear(16, 12)
        self.eos_id = 5
        with torch.no_grad():
            self.head.weight.mul_(5)

    @staticmethod
    def inputs(number):
        return (torch.randint(0, 12, (1, 1 + number % 4)),)

    def step(self, ids, past=None):
        x = self.embed(ids)
        new_past = []
        for i, layer in enumerate(self.layers):
            y, kv = layer(self.norm(x), past[i] if past is not None else None)
            x = x + y
            new_past.append(kv)
        return self.head(x[:, -1]), new_past

    @torch.inference_mode()
    def forward(self, ids):
        generated = []
        logits, past = self.step(ids)
        while len(generated) < 10:
            token = logits.argmax(-1)
            generated.append(token.item())
            if token.item() == self.eos_id:
                break
            logits, past = self.step(token.unsqueeze(1), past)
        return torch.tensor(generated)


class CachedTuples(CachedGeneration):
    """The same from a start token, with the new cache as a tuple of tuples."""

    @staticmethod
    def inputs(number):
        return (torch.randint(0, 12, (1, 1)),)

    def step(self, ids, past=None):
        x = self.embed(ids)
        present = ()
        for layer, layer_past in zip(self.layers, past or (None,) * 2, strict=True):
            y, kv = layer(self.norm(x), layer_past)
            x = x + y
            present += (kv,)
        return self.head(x)[:, -1], present


class BeamSearch(nn.Module):
    """A beam search over a recurrent decoder: topk over beams, states by index_select, finished
    beams apart."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 8)
        self.cell = nn.GRUCell(8, 8)
        self.out = nn.Linear(8, 9)
        self.bos, self.eos, self.beam, self.max_len = 1, 2, 3, 8
        with torch.no_grad():
            self.out.weight.mul_(4)

    @staticmethod
    def inputs(number):
        return (torch.randn(1, 8) * (0.3, 1, 3)[number % 3],)

    @torch.no_grad()
    def forward(self, state):
        k = self.beam
        h = state.expand(k, -1)
        seqs = torch.full((k, 1), self.bos, dtype=torch.long)
        scores = torch.tensor([0.0] + [float("-inf")] * (k - 1))
        finished = []
        for step in range(self.max_len):
            h = self.cell(self.embed(seqs[:, -1]), h)
            logp = F.log_softmax(self.out(h), dim=-1)
            total = (scores.unsqueeze(1) + logp).view(-1)
            top, index = total.topk(k)
            beam = torch.div(index, 9, rounding_mode="floor")
            token = index % 9
            seqs = torch.cat([seqs.index_select(0, beam), token.unsqueeze(1)], dim=1)
            h = h.index_select(0, beam)
            scores = top
            for i in range(k):
                if token[i].item() == self.eos:
                    finished.append((scores[i].item() / (step + 1), seqs[i]))
                    scores[i] = float("-inf")
            if len(finished) >= k:
                break
        if not finished:
            return seqs[scores.argmax()]
        finished.sort(key=lambda pair: pair[0], reverse=True)
        return finished[0][1]


class TensorBeamSearch(BeamSearch):
    """The same with the best finished beam in two variables."""

    @torch.no_grad()
    def forward(self, state):
        k = self.beam
        h = state.repeat(k, 1)
        seqs = torch.full((k, 1), self.bos, dtype=torch.long)
        scores = torch.zeros(k)
        best_score, best_seq = -float("inf"), None
        alive = k
        for step in range(self.max_len):
            h = self.cell(self.embed(seqs[:, -1]), h)
            logp = F.log_softmax(self.out(h), dim=-1)
            total = scores.unsqueeze(1) + logp
            if step == 0:
                top, index = total[0].topk(alive)
            else:
                top, index = total.view(-1).topk(alive)
            beam, token = index // 9, index % 9
            seqs = torch.cat([seqs[beam], token[:, None]], dim=1)
            done = token == self.eos
            if done.any():
                ended = top[done] / (step + 1)
                if ended.max().item() > best_score:
                    best_score = ended.max().item()
                    best_seq = seqs[done][ended.argmax()]
            going = ~done
            alive = int(going.sum())
            if alive == 0:
                break
            seqs, scores, h = seqs[going], top[going], h[beam[going]]
        if best_seq is None:
            best_seq = seqs[0]
        return best_seq


class CTCGreedy(nn.Module):
    """Collapses repeats and drops blanks, token by token."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Conv1d(4, 8, 3, padding=1)
        self.head = nn.Linear(8, 5)
        self.blank = 0
        with torch.no_grad():
            self.head.bias[0] = 1

    @staticmethod
    def inputs(number):
        return (torch.randn(1, 4, 6 + number % 7) * 3,)

    def forward(self, x):
        x = torch.relu(self.encoder(x)).transpose(1, 2)
        logits = self.head(x)
        best = logits.argmax(-1)[0]
        decoded = []
        prev = None
        for t in best.tolist():
            if t != prev and t != self.blank:  # noqa: PLR1714
                decoded.append(t)
            prev = t
        return torch.tensor(decoded, dtype=torch.long)


class CTCBatch(CTCGreedy):
    """Decodes every sequence of a batch to a list of tokens."""

    @staticmethod
    def inputs(number):
        return (torch.randn(2 + number % 2, 4, 6 + number % 7),)

    def forward(self, x):
        x = torch.relu(self.encoder(x)).transpose(1, 2)
        indices = torch.argmax(self.head(x), dim=-1)
        results = []
        for sequence in indices:
            sequence = torch.unique_consecutive(sequence, dim=-1)  # noqa: PLW2901
            results.append([i for i in sequence.tolist() if i != self.blank])
        return results


class RNNTGreedy(nn.Module):
    """Emits tokens of a frame until a blank, at most `max_symbols`."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.GRU(4, 8, batch_first=True)
        self.embed = nn.Embedding(6, 8)
        self.predictor = nn.LSTMCell(8, 8)
        self.joint = nn.Linear(16, 6)
        self.blank, self.max_symbols = 0, 3
        with torch.no_grad():
            self.joint.weight.mul_(3)

    @staticmethod
    def inputs(number):
        return (torch.randn(1, 3 + number % 5, 4) * 2,)

    @torch.no_grad()
    def forward(self, audio):
        enc, _ = self.encoder(audio)
        hyp = []
        state = None
        last = torch.zeros(1, dtype=torch.long)
        h, c = self.predictor(self.embed(last), state)
        for t in range(enc.size(1)):
            f = enc[:, t]
            emitted = 0
            not_blank = True
            while not_blank and emitted < self.max_symbols:
                logits = self.joint(torch.cat([f, h], dim=-1))
                k = logits.argmax(-1).item()
                if k == self.blank:
                    not_blank = False
                else:
                    hyp.append(k)
                    last = torch.tensor([k])
                    h, c = self.predictor(self.embed(last), (h, c))
                    emitted += 1
        return hyp


class HandWrittenNMS(nn.Module):
    """Suppresses boxes one by one while any is left."""

    def __init__(self):
        super().__init__()
        self.scorer = nn.Linear(4, 1)
        self.threshold = 0.3

    @staticmethod
    def inputs(number):
        corner = torch.rand(8 + number % 6, 2)
        return (torch.cat([corner, corner + 0.1 + 0.5 * torch.rand_like(corner)], dim=1),)

    def forward(self, boxes):
        scores = self.scorer(boxes).squeeze(1)
        x1, y1, x2, y2 = boxes[:, 0], boxes[:, 1], boxes[:, 2], boxes[:, 3]
        areas = (x2 - x1) * (y2 - y1)
        order = scores.argsort(descending=True)
        keep = []
        while order.numel() > 0:
            i = order[0]
            keep.append(i.item())
            if order.numel() == 1:
                break
            rest = order[1:]
            xx1 = torch.maximum(x1[rest], x1[i])
            yy1 = torch.maximum(y1[rest], y1[i])
            xx2 = torch.minimum(x2[rest], x2[i])
            yy2 = torch.minimum(y2[rest], y2[i])
            inter = (xx2 - xx1).clamp(min=0) * (yy2 - yy1).clamp(min=0)
            iou = inter / (areas[i] + areas[rest] - inter)
            order = rest[iou <= self.threshold]
        return boxes[keep], scores[keep]


class Detector(nn.Module):
    """Post-processing by class: threshold, top detections, a dictionary of results."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(6, 8)
        self.cls, self.reg = nn.Linear(8, 4), nn.Linear(8, 4)
        self.num_classes, self.score_thresh, self.max_per_class = 4, 0.3, 3

    @staticmethod
    def inputs(number):
        return (torch.randn(5 + number % 6, 6) * (1, 3, 0.5)[number % 3],)

    def forward(self, x):
        feats = torch.relu(self.backbone(x))
        probs = F.softmax(self.cls(feats), dim=-1)
        boxes = self.reg(feats)
        all_boxes, all_scores, all_labels = [], [], []
        for c in range(1, self.num_classes):
            scores = probs[:, c]
            mask = scores > self.score_thresh
            if mask.sum() == 0:
                continue
            kept_scores = scores[mask]
            kept_boxes = boxes[mask]
            n = min(self.max_per_class, kept_scores.size(0))
            top, idx = kept_scores.topk(n)
            all_boxes.append(kept_boxes[idx])
            all_scores.append(top)
            all_labels.append(torch.full((n,), c, dtype=torch.int64))
        if len(all_boxes) == 0:
            return {"boxes": torch.zeros(0, 4), "scores": torch.zeros(0), "labels": torch.zeros(0)}
        return {
            "boxes": torch.cat(all_boxes),
            "scores": torch.cat(all_scores),
            "labels": torch.cat(all_labels),
        }


class FixedPoint(nn.Module):
    """A deep equilibrium layer: iterates until the step is small."""

    def __init__(self):
        super().__init__()
        self.f = nn.Linear(6, 6)
        self.u = nn.Linear(6, 6)
        self.tol, self.max_iter = 1e-3, 50
        with torch.no_grad():
            self.f.weight.mul_(0.5)

    @staticmethod
    def inputs(number):
        return (torch.randn(1 + number % 4, 6) * (1, 0.1, 4)[number % 3],)

    def forward(self, x):
        z = torch.zeros_like(x)
        residuals = []
        for it in range(self.max_iter):  # noqa: B007
            z_next = torch.tanh(self.f(z) + self.u(x))
            res = (z_next - z).norm().item() / (1e-5 + z_next.norm().item())
            residuals.append(res)
            z = z_next
            if res < self.tol:
                break
        return z, it + 1, residuals


class AdaptiveEuler(nn.Module):
    """Euler with step doubling: the error decides whether a step counts."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4))

    @staticmethod
    def inputs(number):
        return (torch.randn(1 + number % 3, 4) * (1, 0.2, 3)[number % 3],)

    def forward(self, y):
        t, t1, dt, tol = 0.0, 1.0, 0.25, 1e-2
        steps = 0
        while t < t1:
            dt = min(dt, t1 - t)
            full = y + dt * self.net(y)
            half = y + dt / 2 * self.net(y)
            half = half + dt / 2 * self.net(half)
            err = (full - half).abs().max().item()
            if err <= tol or dt < 1e-3:
                t += dt
                y = half
                steps += 1
            dt = dt * min(2.0, max(0.3, 0.9 * (tol / (err + 1e-12)) ** 0.5))
        return y, steps


class RungeKutta(AdaptiveEuler):
    """RK4 with the step by the size of the derivative; the path of states is returned."""

    def rk4_step(self, func, y, h):
        k1 = func(y)
        k2 = func(y + h / 2 * k1)
        k3 = func(y + h / 2 * k2)
        k4 = func(y + h * k3)
        return y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)

    def forward(self, y):
        t = 0.0
        trajectory = [y]
        while t < 1.0:
            speed = float(self.net(y).abs().max())
            h = max(0.05, min(0.5, 0.2 / (speed + 1e-6)))
            if t + h > 1.0:
                h = 1.0 - t
            y = self.rk4_step(self.net, y, h)
            t += h
            trajectory.append(y)
        return torch.stack(trajectory)


class AdaptiveComputation(nn.Module):
    """Halts by accumulated probability (ACT)."""

    def __init__(self):
        super().__init__()
        self.cell, self.halt = nn.GRUCell(6, 6), nn.Linear(6, 1)

    @staticmethod
    def inputs(number):
        return (torch.randn(1 + number % 3, 6) * (1, 2, 5)[number % 3],)

    def forward(self, x):
        h = torch.zeros_like(x)
        total = torch.zeros(x.size(0))
        out = torch.zeros_like(x)
        n = 0
        while True:
            h = self.cell(x, h)
            p = torch.sigmoid(self.halt(h)).squeeze(-1)
            still = (total < 0.99).float()
            p = torch.minimum(p, 1 - total) * still
            out = out + p.unsqueeze(-1) * h
            total = total + p
            n += 1
            if (total >= 0.99).all() or n == 12:
                break
        return out, n


class Seq2Seq(nn.Module):
    """Encoder and attending decoder; the loop keeps attention weights until the end token."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.encoder = nn.GRU(8, 8, batch_first=True)
        self.decoder = nn.GRU(16, 8, batch_first=True)
        self.out = nn.Linear(8, 10)
        self.sos, self.eos, self.max_length = 0, 1, 9
        with torch.no_grad():
            self.out.weight.mul_(4)
            self.out.bias[1] = 1

    @staticmethod
    def inputs(number):
        return (torch.randint(0, 10, (1, 1 + number % 6)),)

    def forward(self, src):
        with torch.no_grad():
            encoded, hidden = self.encoder(self.embedding(src))
            token = torch.empty(1, 1, dtype=torch.long).fill_(self.sos)
            decoded_ids, attentions = [], []
            for _ in range(self.max_length):
                weights = F.softmax(torch.bmm(hidden.transpose(0, 1), encoded.transpose(1, 2)), -1)
                context = torch.bmm(weights, encoded)
                step = torch.cat((self.embedding(token), context), dim=2)
                output, hidden = self.decoder(step, hidden)
                attentions.append(weights)
                _, topi = self.out(output).topk(1)
                token = topi.squeeze(-1).detach()
                if token.item() == self.eos:
                    decoded_ids.append(self.eos)
                    break
                else:
                    decoded_ids.append(token.item())
            return decoded_ids, torch.cat(attentions, dim=1)


class SpeculativeDecoding(nn.Module):
    """A small model drafts tokens, the large one accepts the longest prefix that it agrees with."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(8, 8)
        self.draft, self.target = nn.Linear(8, 8), nn.Linear(8, 8)
        with torch.no_grad():
            self.target.weight.copy_(self.draft.weight + 0.2 * torch.randn(8, 8))

    @staticmethod
    def inputs(number):
        return (torch.randint(0, 8, (1, 1 + number % 3)),)

    def forward(self, ids):
        length = ids.shape[1] + 8
        while ids.shape[1] < length:
            drafted = ids
            for _ in range(3):
                next_token = self.draft(self.embed(drafted[:, -1])).argmax(-1)
                drafted = torch.cat([drafted, next_token[:, None]], dim=1)
            logits = self.target(self.embed(drafted))
            n = ids.shape[1]
            accepted = 0
            while accepted < 3:
                if logits[0, n - 1 + accepted].argmax() != drafted[0, n + accepted]:
                    break
                accepted += 1
            correction = logits[:, n - 1 + accepted].argmax(-1, keepdim=True)
            ids = torch.cat([drafted[:, : n + accepted], correction], dim=1)
        return ids


PROGRAMS = (
    GreedyGeneration,
    BlockSizeGeneration,
    CachedGeneration,
    CachedTuples,
    BeamSearch,
    TensorBeamSearch,
    CTCGreedy,
    CTCBatch,
    RNNTGreedy,
    HandWrittenNMS,
    Detector,
    FixedPoint,
    AdaptiveEuler,
    RungeKutta,
    AdaptiveComputation,
    Seq2Seq,
    SpeculativeDecoding,
)
