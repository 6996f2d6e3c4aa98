"""Test that tests of sizes in a model tell the sizes of its inputs."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from regraft.verification.child.drivers import input_guesses  # noqa: E402


class Tokens(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Takes as many tokens as an image of `sides` has, with a message that has no numbers."""

    def __init__(self, *sides: int) -> None:
        super().__init__()
        self.sides, self.norm = sides, torch.nn.LayerNorm(16)

    def forward(self, x: Any) -> Any:
        height, width = self.sides
        _batch, length, _channels = x.shape
        assert length == height * width, "input feature has wrong size"
        return self.norm(x).view(-1, height, width, 16)


class Image(torch.nn.Module):  # type: ignore[misc, name-defined]
    """Takes images whose sides windows divide."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.window, self.conv = window, torch.nn.Conv2d(3, 8, 1)

    def forward(self, pixels: Any) -> Any:
        if pixels.size(-1) % self.window != 0:
            raise ValueError("windows do not fit")
        if pixels.shape[2] % self.window:
            raise ValueError("windows do not fit")
        return self.conv(pixels).unflatten(-1, (-1, self.window))


@pytest.mark.parametrize("model", [Tokens(8, 8), Tokens(5, 11), Image(7), Image(11)])
def test_a_test_of_sizes_tells_the_sizes_of_an_input(model: Any) -> None:
    accepted = input_guesses.find_accepted(model.eval())
    assert accepted.calls(model)(0)
