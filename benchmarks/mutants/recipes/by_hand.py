"""Mutants that are written for one place: a file, a definition, a few tokens of it and what
replaces them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mutants.core import Finder, Module, Recipe, Site
from regraft.source.text import Edit, Span


@dataclass(frozen=True, slots=True)
class Hand:
    """Replace the tokens `old` of a definition by `new`; `ordinal` counts where they stand more
    than once."""

    name: str
    kind: str
    file: str
    definition: str
    old: str
    new: str
    differs: str
    ordinal: int = 0

    def recipe(self) -> Recipe:
        return Recipe(self.name, self.kind, self.differs, _find(self), 1, files=(self.file,))


def _find(hand: Hand) -> Finder:
    def find(module: Module) -> Iterator[Site]:
        function = module.function(hand.definition)
        if function is None:
            return
        span = module.source.span(function.node)
        starts = _occurrences(module.source.text[span.start : span.end], hand.old.encode())
        if hand.ordinal < len(starts):
            start = span.start + starts[hand.ordinal]
            edit = Edit(Span(start, start + len(hand.old.encode())), hand.new)
            line = module.source.position(start)[0]
            yield Site(hand.definition, line, (edit,), f"{hand.old} -> {hand.new}")

    return find


def _occurrences(text: bytes, part: bytes) -> list[int]:
    starts, start = [], text.find(part)
    while start >= 0:
        starts.append(start)
        start = text.find(part, start + 1)
    return starts


_T = "transformers/models"
_D = "diffusers/models"
_BERT, _T5 = f"{_T}/bert/modeling_bert.py", f"{_T}/t5/modeling_t5.py"
_GPT2, _MIXTRAL = f"{_T}/gpt2/modeling_gpt2.py", f"{_T}/mixtral/modeling_mixtral.py"
_GEMMA2, _ROBERTA = f"{_T}/gemma2/modeling_gemma2.py", f"{_T}/roberta/modeling_roberta.py"
_EMBEDDINGS, _RESNET = f"{_D}/embeddings.py", f"{_D}/resnet.py"
_IDS = "RobertaEmbeddings.create_position_ids_from_input_ids"
HANDS = (
    Hand(
        "bert-positions-from-start",
        "cache",
        _BERT,
        "BertEmbeddings.forward",
        "past_key_values_length : seq_length + past_key_values_length",
        ":seq_length",
        "cached places",
    ),
    Hand(
        "bert-positions-modulo",
        "size",
        _BERT,
        "BertEmbeddings.forward",
        "self.position_embeddings(position_ids)",
        "self.position_embeddings(position_ids % 128)",
        "more than 128 places",
    ),
    Hand(
        "bert-types-of-first-row",
        "size",
        _BERT,
        "BertEmbeddings.forward",
        "self.token_type_embeddings(token_type_ids)",
        "self.token_type_embeddings(token_type_ids[:1])",
        "rows with different token types",
    ),
    Hand(
        "t5-last-bucket",
        "size",
        _T5,
        "T5Attention._relative_position_bucket",
        "relative_position_if_large, num_buckets - 1",
        "relative_position_if_large, num_buckets - 2",
        "places further apart than about 115",
    ),
    Hand(
        "t5-half-of-buckets",
        "size",
        _T5,
        "T5Attention._relative_position_bucket",
        "max_exact = num_buckets // 2",
        "max_exact = min(num_buckets // 2, 8)",
        "more than 32 buckets",
    ),
    Hand(
        "t5-largest-distance",
        "configuration",
        _T5,
        "T5Attention.compute_bias",
        "max_distance=self.relative_attention_max_distance",
        "max_distance=128",
        "another largest distance",
    ),
    Hand(
        "t5-bias-from-start",
        "cache",
        _T5,
        "T5Attention.compute_bias",
        "[:, None] + past_seen_tokens",
        "[:, None]",
        "cached places",
    ),
    Hand(
        "t5-bias-of-one-step",
        "cache",
        _T5,
        "T5Attention.compute_bias",
        "[:, None] + past_seen_tokens",
        "[:, None] + past_seen_tokens * (query_length == 1)",
        "several queries with cached places",
    ),
    Hand(
        "gpt2-upcast-ignored",
        "configuration",
        _GPT2,
        "GPT2Attention.forward",
        "using_eager and self.reorder_and_upcast_attn",
        "using_eager and self.reorder_and_upcast_attn is None",
        "reorder_and_upcast_attn in half precision",
    ),
    Hand(
        "gpt2-cross-cache-again",
        "cache",
        _GPT2,
        "GPT2Attention.forward",
        "is_updated[self.layer_idx] = True",
        "is_updated[self.layer_idx] = self.layer_idx > 0",
        "a second decoding step with cross-attention",
    ),
    Hand(
        "gpt2-dropout-of-evaluation",
        "value",
        _GPT2,
        "GPT2Attention.forward",
        "self.attn_dropout.p if self.training",
        "self.attn_dropout.p if torch.is_grad_enabled() and self.training",
        "training without gradients and with dropout of attention",
    ),
    Hand(
        "whisper-cross-cache-again",
        "cache",
        f"{_T}/whisper/modeling_whisper.py",
        "WhisperAttention.forward",
        "is_updated[self.layer_idx] = True",
        "is_updated[self.layer_idx] = self.layer_idx > 0",
        "a second decoding step with cross-attention",
    ),
    Hand(
        "opt-positions-without-mask",
        "mask",
        f"{_T}/opt/modeling_opt.py",
        "OPTLearnedPositionalEmbedding.forward",
        "torch.cumsum(attention_mask, dim=1)",
        "torch.cumsum(torch.ones_like(attention_mask), dim=1)",
        "left padding or holes",
    ),
    Hand(
        "opt-positions-of-last",
        "cache",
        f"{_T}/opt/modeling_opt.py",
        "OPTLearnedPositionalEmbedding.forward",
        "[:, past_key_values_length:]",
        "[:, -1:] if past_key_values_length else position_ids",
        "several new places after cached ones",
    ),
    Hand(
        "bloom-alibi-without-padding",
        "mask",
        f"{_T}/bloom/modeling_bloom.py",
        "build_alibi_tensor",
        "(attention_mask.cumsum(dim=-1) - 1) * attention_mask",
        "(torch.ones_like(attention_mask).cumsum(dim=-1) - 1) * attention_mask",
        "left padding or holes",
    ),
    Hand(
        "bloom-alibi-of-first-row",
        "mask",
        f"{_T}/bloom/modeling_bloom.py",
        "build_alibi_tensor",
        "attention_mask.cumsum(dim=-1)",
        "attention_mask[:1].cumsum(dim=-1)",
        "rows with different padding",
    ),
    Hand(
        "mixtral-routing-bounded",
        "value",
        _MIXTRAL,
        "MixtralTopKRouter.forward",
        "sum(dim=-1, keepdim=True)",
        "sum(dim=-1, keepdim=True).clamp(min=0.25)",
        "routing whose best experts have less than a quarter",
    ),
    Hand(
        "mixtral-mask-of-experts",
        "mask",
        _MIXTRAL,
        "load_balancing_loss_func",
        "flat_mask.repeat_interleave(top_k)",
        "flat_mask.repeat(top_k)",
        "padding with the loss of the router",
    ),
    Hand(
        "mixtral-noise-threshold",
        "configuration",
        _MIXTRAL,
        "MixtralSparseMoeBlock.forward",
        "self.jitter_noise > 0",
        "self.jitter_noise > 0.5",
        "noise of the router between 0 and 0.5",
    ),
    Hand(
        "llama-positions-of-first-row",
        "mask",
        f"{_T}/llama/modeling_llama.py",
        "LlamaRotaryEmbedding.forward",
        "position_ids[..., None]",
        "position_ids[:1, ..., None]",
        "rows with different positions",
    ),
    Hand(
        "qwen2-positions-rounded",
        "value",
        f"{_T}/qwen2/modeling_qwen2.py",
        "Qwen2RotaryEmbedding.forward",
        "position_ids[..., None].float()",
        "position_ids[..., None].to(x.dtype).float()",
        "positions above 256 in bfloat16",
    ),
    Hand(
        "qwen2-scaling-dropped",
        "configuration",
        f"{_T}/qwen3/modeling_qwen3.py",
        "Qwen3RotaryEmbedding.forward",
        "emb.cos() * self.attention_scaling",
        "emb.cos()",
        "rope scaling with a factor of attention",
    ),
    Hand(
        "gemma2-cap-of-scores",
        "configuration",
        _GEMMA2,
        "eager_attention_forward",
        "attn_weights / softcap",
        "attn_weights / 50.0",
        "another cap of attention",
    ),
    Hand(
        "gemma2-cap-by-parts",
        "value",
        _GEMMA2,
        "eager_attention_forward",
        "torch.tanh(attn_weights)",
        "attn_weights.clamp(-1.0, 1.0)",
        "scores of a fifth of the cap or more",
    ),
    Hand(
        "gemma2-norm-of-half",
        "value",
        _GEMMA2,
        "Gemma2RMSNorm.forward",
        "self._norm(x.float())",
        "self._norm(x.float() if x.dtype != torch.bfloat16 else x)",
        "bfloat16",
    ),
    Hand(
        "gemma2-last-cap",
        "configuration",
        _GEMMA2,
        "Gemma2ForCausalLM.forward",
        "logits / self.config.final_logit_softcapping",
        "logits / 30.0",
        "another cap of the logits",
    ),
    Hand(
        "roberta-positions-from-start",
        "cache",
        _ROBERTA,
        _IDS,
        " + past_key_values_length",
        "",
        "cached places",
    ),
    Hand(
        "roberta-positions-of-padding",
        "mask",
        _ROBERTA,
        _IDS,
        "torch.cumsum(mask, dim=1)",
        "torch.arange(1, mask.shape[1] + 1, device=mask.device).expand_as(mask)",
        "padding at the left or inside of a row",
    ),
    Hand(
        "clip-last-place",
        "value",
        f"{_T}/clip/modeling_clip.py",
        "CLIPTextModel.forward",
        "self.eos_token_id == 2",
        "self.eos_token_id <= 2",
        "an end token with the number 0 or 1",
    ),
    Hand(
        "timm-paths-scaled",
        "value",
        "timm/layers/drop.py",
        "drop_path",
        "keep_prob > 0.0 and scale_by_keep",
        "keep_prob > 0.25 and scale_by_keep",
        "rates of dropped paths of 0.75 and more",
    ),
    Hand(
        "timm-dropout-of-mlp",
        "configuration",
        "timm/layers/mlp.py",
        "Mlp.__init__",
        "drop_probs[1]",
        "drop_probs[0]",
        "two different rates of dropout",
    ),
    Hand(
        "timm-bias-of-mlp",
        "configuration",
        "timm/layers/mlp.py",
        "Mlp.__init__",
        "bias=bias[1]",
        "bias=bias[0]",
        "a bias in only one of the two layers",
    ),
    Hand(
        "timm-windows-oblong",
        "size",
        "timm/models/swin_transformer.py",
        "window_partition",
        "H // window_size[0], window_size[0]",
        "H // window_size[1], window_size[1]",
        "windows that are not square",
    ),
    Hand(
        "timm-registers-first-row",
        "size",
        "timm/models/vision_transformer.py",
        "VisionTransformer._pos_embed",
        "self.reg_token.expand(x.shape[0], -1, -1)",
        "self.reg_token[:, :1].expand(x.shape[0], self.reg_token.shape[1], -1)",
        "more than one register token",
    ),
    Hand(
        "diffusers-odd-embedding",
        "size",
        _EMBEDDINGS,
        "get_timestep_embedding",
        "embedding_dim % 2 == 1",
        "embedding_dim % 4 == 1",
        "a width that leaves 3 when divided by 4",
    ),
    Hand(
        "diffusers-frequency-shift",
        "configuration",
        _EMBEDDINGS,
        "get_timestep_embedding",
        "half_dim - downscale_freq_shift",
        "half_dim - 1",
        "another shift of frequencies than 1",
    ),
    Hand(
        "diffusers-longest-period",
        "configuration",
        _EMBEDDINGS,
        "get_timestep_embedding",
        "math.log(max_period)",
        "math.log(10000)",
        "another longest period",
    ),
    Hand(
        "diffusers-times-bounded",
        "value",
        _EMBEDDINGS,
        "get_timestep_embedding",
        "timesteps[:, None].float()",
        "timesteps[:, None].float().clamp(max=1000)",
        "times above 1,000",
    ),
    Hand(
        "diffusers-times-of-first-row",
        "size",
        _EMBEDDINGS,
        "get_timestep_embedding",
        "timesteps[:, None].float()",
        "timesteps[:1, None].float().expand(len(timesteps), 1)",
        "rows with different times",
    ),
    Hand(
        "diffusers-output-scale",
        "configuration",
        _RESNET,
        "ResnetBlock2D.forward",
        " / self.output_scale_factor",
        "",
        "another scale of the output",
    ),
    Hand(
        "flux-mask-dropped",
        "mask",
        f"{_D}/transformers/transformer_flux.py",
        "FluxAttnProcessor.__call__",
        "attn_mask=attention_mask",
        "attn_mask=None",
        "a mask of attention",
    ),
    Hand(
        "flux-time-rounded",
        "value",
        f"{_D}/transformers/transformer_flux.py",
        "FluxTransformer2DModel.forward",
        "timestep.to(hidden_states.dtype) * 1000",
        "(timestep.to(hidden_states.dtype) * 1000).round()",
        "times that are no multiple of a thousandth",
    ),
)
RECIPES = tuple(hand.recipe() for hand in HANDS)
