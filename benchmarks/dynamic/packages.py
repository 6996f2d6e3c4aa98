"""Dynamic networks of transformers 5.23.0, small random configurations.

NAMES, and build(name, n) -> (model, calls).
"""

from __future__ import annotations

import torch
import transformers
from torch import nn

UNSEEN = "raise"  # the expert beyond the last one, which padding for other devices would choose
SMALL = {
    "vocab_size": 256,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


class Logits(nn.Module):
    """A language model without a cache, as a function of the tokens."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits


class Greedy(nn.Module):
    """Greedy decoding without a cache, until a token ends it."""

    def __init__(self, model: nn.Module, end: int, longest: int = 16) -> None:
        super().__init__()
        self.model, self.end, self.longest = model, end, longest

    def forward(self, ids):
        while ids.shape[1] < self.longest:
            token = (
                self.model(input_ids=ids, use_cache=False).logits[:, -1].argmax(-1, keepdim=True)
            )
            ids = torch.cat([ids, token], dim=1)
            if token.item() == self.end:
                break
        return ids


def mixtral() -> nn.Module:
    config = transformers.MixtralConfig(**SMALL, num_local_experts=4, num_experts_per_tok=2)
    return Logits(
        transformers.MixtralForCausalLM._from_config(config, experts_implementation="eager")
    )


def qwen3() -> nn.Module:
    config = transformers.Qwen3MoeConfig(
        **SMALL, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=48, head_dim=16
    )
    return Logits(
        transformers.Qwen3MoeForCausalLM._from_config(config, experts_implementation="eager")
    )


def olmoe() -> nn.Module:
    config = transformers.OlmoeConfig(**SMALL, num_experts=4, num_experts_per_tok=2)
    return Logits(
        transformers.OlmoeForCausalLM._from_config(config, experts_implementation="eager")
    )


def gpt2() -> nn.Module:
    config = transformers.GPT2Config(vocab_size=256, n_positions=64, n_embd=64, n_layer=2, n_head=4)
    return Greedy(transformers.GPT2LMHeadModel(config), -1)


def switch() -> nn.Module:
    config = transformers.SwitchTransformersConfig(
        vocab_size=256,
        d_model=64,
        d_kv=16,
        d_ff=96,
        num_layers=2,
        num_heads=4,
        num_experts=4,
        num_sparse_encoder_layers=1,
    )
    config._experts_implementation = "eager"
    return Encoder(transformers.SwitchTransformersEncoderModel(config))


class Encoder(nn.Module):
    """The last hidden state of an encoder."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids).last_hidden_state


class Pooled(nn.Module):
    """The last hidden state, with some tokens that look at the whole sequence."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids, wide):
        return self.model(
            input_ids=ids, attention_mask=torch.ones_like(ids), global_attention_mask=wide
        ).last_hidden_state


def longformer() -> nn.Module:
    config = transformers.LongformerConfig(
        vocab_size=96,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        attention_window=4,
        max_position_embeddings=64,
    )
    return Pooled(transformers.LongformerModel(config, add_pooling_layer=False))


class Speech(nn.Module):
    """The waveform of VITS, which draws its noise also where the scale of the noise is zero."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(input_ids=ids).waveform


def vits() -> nn.Module:
    config = transformers.VitsConfig(
        vocab_size=38,
        hidden_size=16,
        num_hidden_layers=1,
        ffn_dim=16,
        flow_size=16,
        spectrogram_bins=8,
        upsample_initial_channel=16,
        upsample_rates=[2, 2],
        upsample_kernel_sizes=[4, 4],
        resblock_kernel_sizes=[3],
        resblock_dilation_sizes=[[1]],
        prior_encoder_num_flows=1,
        posterior_encoder_num_wavenet_layers=1,
        use_stochastic_duration_prediction=False,
        noise_scale=0.0,
        noise_scale_duration=0.0,
    )
    return Speech(transformers.VitsModel(config))


MAKERS = {
    "mixtral": mixtral,
    "qwen3-moe": qwen3,
    "olmoe": olmoe,
    "switch": switch,
    "longformer": longformer,
    "vits": vits,
    "gpt2-greedy": gpt2,
}
NAMES = list(MAKERS)


@torch.no_grad()
def build(name: str, n: int = 40) -> tuple[nn.Module, list[tuple[torch.Tensor, ...]]]:
    torch.manual_seed(0)
    model = MAKERS[name]().eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.mul_(4)
    calls = [(torch.randint(0, 38, (1, 6)),) for _ in range(n)]
    if isinstance(model, Pooled):
        return model, [(*call, (torch.rand(1, 6) > 0.7).long()) for call in calls]
    if isinstance(model, Greedy):
        said = torch.cat([model(*call)[0, 8:] for call in calls])
        model.end = int(said.mode().values)
    return model, calls
