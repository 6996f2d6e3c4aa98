"""Modules that wrap a model and call it several times: a language model that continues from its
cache or generates, or any model in a row."""

from __future__ import annotations

from typing import Any

from torch import nn


class Decoding(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Runs a language model on its tokens but the last three, then on these from the cache.

    The last three are run one by one, or in one call with `together`; `forward` returns the first
    output of every call.
    """

    def __init__(self, model: Any, together: bool) -> None:
        super().__init__()
        self.model, self.together = model, together
        if hasattr(model, "config"):
            self.config = model.config

    def forward(self, **kwargs: Any) -> Any:
        """Return the list of the first outputs of every call; takes the model's keyword arguments,
        of which token ids and mask are cut to the tokens of each call: all but the last three
        tokens first, then these one by one, or in one call (`together`). The cache of each call
        goes into the next."""
        ids_name = "decoder_input_ids" if "decoder_input_ids" in kwargs else "input_ids"
        mask_name = "decoder_attention_mask" if ids_name.startswith("decoder") else "attention_mask"
        ids, mask = kwargs[ids_name], kwargs.get(mask_name)
        length = ids.shape[1]
        ends = [length - 3, length] if self.together else list(range(length - 3, length + 1))
        results, cache, start = [], None, 0
        for end in ends:
            requests = {"use_cache": True, "return_dict": True}
            step_kwargs = {**kwargs, ids_name: ids[:, start:end], **requests}
            if mask is not None:
                step_kwargs[mask_name] = mask[:, :end]
            if cache is not None:
                step_kwargs["past_key_values"] = cache
            output = self.model(**step_kwargs)
            results.append(output[0])
            cache, start = output.past_key_values, end
        return results


class Generating(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Lets a language model generate `tokens` more tokens greedily.

    `forward` returns the generated sequences and the scores of each step.
    """

    def __init__(self, model: Any, tokens: int = 4) -> None:
        super().__init__()
        self.model, self.tokens = model, tokens
        if hasattr(model, "config"):
            self.config = model.config

    def forward(self, **kwargs: Any) -> Any:
        """Return the generated sequences and the scores of each step; takes `input_ids` and further
        keyword arguments of `generate`."""
        ids = kwargs.pop("input_ids")
        settings = {
            "max_new_tokens": self.tokens,
            "min_new_tokens": self.tokens,
            "do_sample": False,
            "num_beams": 1,
        }
        output = self.model.generate(
            ids, **kwargs, **settings, return_dict_in_generate=True, output_scores=True
        )
        return output.sequences, output.scores


class InTurn(nn.Module):  # type: ignore[misc]  # torch is untyped here
    """Calls a model several times in a row, as users do, so that state which a call leaves shows in
    the next.

    `forward` takes pairs of positional and keyword arguments, and returns the list of results.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model
        if hasattr(model, "config"):
            self.config = model.config

    def forward(self, *calls: Any) -> Any:
        """Return the list of results of the calls in order, each a pair of positional and keyword
        arguments."""
        return [self.model(*args, **kwargs) for args, kwargs in calls]
