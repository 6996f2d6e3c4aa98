"""Test the content by which stored values are compared."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from regraft.splitting.network_cache import content_of_tensor


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool])
def test_tensors_of_any_stride_have_content(dtype: torch.dtype) -> None:
    column = torch.zeros(3, 2).to(dtype)[:, :1]
    for tensor in (column, column[:1], column[:, 0][:1], column[0, 0], column.T, column[:0]):
        content = content_of_tensor(tensor)
        assert content == content_of_tensor(tensor)
        if tensor.numel():
            assert content != content_of_tensor(tensor + 1)
