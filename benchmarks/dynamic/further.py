"""Further dynamic networks of packages, tiny and with random weights; the code of most cannot be
split yet.

NAMES, and build(name, n) -> (model, calls). Needs transformers 5.23.0, torchdiffeq 0.2.5, torchdeq
0.1.0, pytorch-crf 0.7.2, st-moe-pytorch 0.1.8 and openai-whisper 20250625.
"""

from __future__ import annotations

import torch
import transformers
from torch import nn

UNSEEN = "raise"


class Generate(nn.Module):
    """SpeechT5's own loop, which stops where it is sure that the speech ends."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.SpeechT5Config(
            vocab_size=40,
            hidden_size=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=2,
            decoder_attention_heads=2,
            encoder_ffn_dim=16,
            decoder_ffn_dim=16,
            num_mel_bins=8,
            reduction_factor=2,
            speech_decoder_prenet_units=8,
            speech_decoder_postnet_units=8,
            speech_decoder_postnet_layers=1,
            speaker_embedding_dim=4,
            speech_decoder_prenet_dropout=0.0,
        )
        self.model = transformers.SpeechT5ForTextToSpeech(config)

    def forward(self, ids, speaker):
        return self.model.generate_speech(ids, speaker, threshold=0.5, maxlenratio=2.0)


class FastSpeech(nn.Module):
    """Each phoneme lasts as long as a predictor says."""

    def __init__(self) -> None:
        super().__init__()
        config = transformers.FastSpeech2ConformerConfig(
            vocab_size=40,
            hidden_size=16,
            encoder_layers=1,
            decoder_layers=1,
            encoder_num_attention_heads=2,
            decoder_num_attention_heads=2,
            encoder_linear_units=16,
            decoder_linear_units=16,
            num_mel_bins=8,
            speech_decoder_postnet_layers=1,
            speech_decoder_postnet_units=8,
            duration_predictor_channels=8,
            energy_predictor_channels=8,
            pitch_predictor_channels=8,
            pitch_predictor_layers=1,
        )
        self.model = transformers.FastSpeech2ConformerModel(config)

    def forward(self, ids):
        return self.model(input_ids=ids).spectrogram


class Field(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 8))

    def forward(self, t, y):
        return self.net(y)


class Ode(nn.Module):
    """torchdiffeq's adaptive Runge-Kutta solver."""

    def __init__(self) -> None:
        super().__init__()
        from torchdiffeq import odeint

        self.solve, self.field = odeint, Field()
        self.register_buffer("times", torch.tensor([0.0, 1.0]))

    def forward(self, x):
        return self.solve(self.field, x, self.times, method="dopri5", rtol=1e-3, atol=1e-3)[-1]


class Deq(nn.Module):
    """torchdeq's fixed point."""

    def __init__(self) -> None:
        super().__init__()
        from torchdeq import get_deq

        self.inner, self.outer = nn.Linear(8, 8), nn.Linear(8, 8)
        self.deq = get_deq(f_solver="fixed_point_iter", f_max_iter=30)

    def forward(self, x):
        bias = self.outer(x)
        found, _ = self.deq(lambda z: torch.tanh(self.inner(z) + bias), torch.zeros_like(x))
        return found[-1]


class Tagger(nn.Module):
    """pytorch-crf's Viterbi decoding."""

    def __init__(self) -> None:
        super().__init__()
        from torchcrf import CRF

        self.scores, self.crf = nn.Linear(8, 4), CRF(4, batch_first=True)

    def forward(self, x):
        return self.crf.decode(self.scores(x))


class Mixture(nn.Module):
    """st-moe-pytorch's layer of experts."""

    def __init__(self) -> None:
        super().__init__()
        from st_moe_pytorch import MoE

        self.moe = MoE(dim=16, num_experts=4, gating_top_n=2)

    def forward(self, x):
        return self.moe(x).outputs


class Transcribe(nn.Module):
    """openai-whisper's greedy decoding."""

    def __init__(self) -> None:
        super().__init__()
        import whisper

        dims = whisper.model.ModelDimensions(
            n_mels=80,
            n_audio_ctx=1500,
            n_audio_state=16,
            n_audio_head=2,
            n_audio_layer=1,
            n_vocab=51865,
            n_text_ctx=448,
            n_text_state=16,
            n_text_head=2,
            n_text_layer=1,
        )
        self.model = whisper.model.Whisper(dims)
        self.decode = whisper.decode
        self.options = whisper.DecodingOptions(language="en", fp16=False, sample_len=4)

    def forward(self, mel):
        return self.decode(self.model, mel, self.options)[0].tokens


MAKERS = {
    "speecht5": (Generate, lambda: (torch.randint(0, 40, (1, 6)), torch.randn(1, 4))),
    "fastspeech2": (FastSpeech, lambda: (torch.randint(1, 40, (1, 6)),)),
    "torchdiffeq": (Ode, lambda: (torch.randn(1, 8),)),
    "torchdeq": (Deq, lambda: (torch.randn(1, 8),)),
    "crf": (Tagger, lambda: (torch.randn(1, 5, 8),)),
    "st-moe": (Mixture, lambda: (torch.randn(1, 6, 16),)),
    "whisper": (Transcribe, lambda: (torch.randn(1, 80, 3000),)),
}
NAMES = list(MAKERS)


@torch.no_grad()
def build(name: str, n: int = 24) -> tuple[nn.Module, list[tuple[torch.Tensor, ...]]]:
    torch.manual_seed(0)
    make, call = MAKERS[name]
    return make().eval(), [call() for _ in range(n)]
