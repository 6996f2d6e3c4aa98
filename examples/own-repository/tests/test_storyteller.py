"""The repository's own tests: they pass before `regraft check --fix` and after it."""

import torch
from storyteller.config import Config
from storyteller.model import Storyteller

SMALL = Config(vocabulary=97, width=32, layers=2, heads=4, hidden=48, context=64)


def test_later_tokens_do_not_change_earlier_logits() -> None:
    torch.manual_seed(0)
    model = Storyteller(SMALL).eval()
    tokens = torch.randint(97, (2, 12))
    with torch.no_grad():
        logits, loss = model(tokens)
        shorter, _ = model(tokens[:, :7])
    assert loss is None
    torch.testing.assert_close(logits[:, :7], shorter)


def test_training_lowers_the_loss() -> None:
    torch.manual_seed(0)
    model = Storyteller(SMALL)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    tokens = torch.randint(97, (4, 33))
    losses = []
    for _ in range(20):
        _, loss = model(tokens[:, :-1], tokens[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]


def test_checkpoints_keep_their_names() -> None:
    names = set(Storyteller(SMALL).state_dict())
    assert {"table.weight", "blocks.1.attention.query.weight", "head.weight"} <= names
