"""Train on random tokens: `python train.py [STEPS]`; prints the loss and the seconds of a step."""

import sys
import time

import torch
from storyteller.config import Config
from storyteller.model import Storyteller


def main() -> None:
    torch.manual_seed(0)
    model = Storyteller(Config())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    for step in range(int(sys.argv[1]) if len(sys.argv) > 1 else 3):
        tokens = torch.randint(model.config.vocabulary, (2, 513))
        started = time.perf_counter()
        _, loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {loss.item():.4f}, {time.perf_counter() - started:.2f} s")


if __name__ == "__main__":
    main()
