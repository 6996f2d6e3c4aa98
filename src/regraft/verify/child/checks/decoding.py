"""A language model that goes on from its own cache."""

from __future__ import annotations

from typing import Any

from torch import nn


class Decoding(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Runs a model on the begin of its tokens, then on the others from the cache: one by one, or `together`."""

    def __init__(self, model: Any, together: bool) -> None:
        super().__init__()
        self.model, self.together = model, together
        if hasattr(model, "config"):
            self.config = model.config

    def forward(self, **kwargs: Any) -> Any:
        ids_name = "decoder_input_ids" if "decoder_input_ids" in kwargs else "input_ids"
        mask_name = "decoder_attention_mask" if ids_name.startswith("decoder") else "attention_mask"
        ids, mask = kwargs[ids_name], kwargs.get(mask_name)
        begin = ids.shape[1] - 3
        steps = [begin, ids.shape[1]] if self.together else list(range(begin, ids.shape[1] + 1))
        results, cache, start = [], None, 0
        for end in steps:
            given = {**kwargs, ids_name: ids[:, start:end], "use_cache": True, "return_dict": True}
            if mask is not None:
                given[mask_name] = mask[:, :end]
            if cache is not None:
                given["past_key_values"] = cache
            output = self.model(**given)
            results.append(output[0])
            cache, start = output.past_key_values, end
        return results
