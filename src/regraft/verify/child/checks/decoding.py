"""Models that are called several times: a language model that goes on from its cache, any other one in a row."""

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


class Generating(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Lets a language model generate a few tokens, the likeliest each time; the scores are results too."""

    def __init__(self, model: Any, tokens: int = 4) -> None:
        super().__init__()
        self.model, self.tokens = model, tokens
        if hasattr(model, "config"):
            self.config = model.config

    def forward(self, **kwargs: Any) -> Any:
        ids = kwargs.pop("input_ids")
        chosen = {"max_new_tokens": self.tokens, "min_new_tokens": self.tokens, "do_sample": False, "num_beams": 1}
        output = self.model.generate(ids, **kwargs, **chosen, return_dict_in_generate=True, output_scores=True)
        return output.sequences, output.scores


class InTurn(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Calls a model several times, as users do, so that what it remembers of a call shows in the next."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        if hasattr(model, "config"):
            self.config = model.config

    def forward(self, *calls: Any) -> Any:
        return [self.model(*args, **kwargs) for args, kwargs in calls]
