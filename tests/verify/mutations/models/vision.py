"""Convolutions, batch norms and residuals, as vision models write them."""

import torch
import torch.nn.functional as F
from torch import nn


class ConvBN(nn.Module):
    def __init__(self, channels=8, momentum=0.1, eps=1e-5):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.bn = nn.BatchNorm2d(channels, momentum=momentum, eps=eps)

    def forward(self, x):
        return torch.relu(self.bn(self.conv(x)))


class Bottleneck(nn.Module):
    """As in ResNet: three convolutions, a shortcut that changes the stride."""

    def __init__(self, channels=8, stride=2):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, channels // 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels // 2)
        self.conv2 = nn.Conv2d(channels // 2, channels, 3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        self.downsample = nn.Sequential(
            nn.Conv2d(channels, channels, 1, stride=stride), nn.BatchNorm2d(channels)
        )

    def forward(self, x):
        identity = self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out))
        out = out + identity
        return F.relu(out)


class PreActivation(nn.Module):
    """As in DPT: activation before convolution, batch norm only where the configuration
    wants it."""

    def __init__(self, channels=8, use_batch_norm=True):
        super().__init__()
        self.use_batch_norm = use_batch_norm
        self.activation = nn.ReLU()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, bias=not use_batch_norm)
        if use_batch_norm:
            self.norm = nn.BatchNorm2d(channels)

    def forward(self, x):
        residual = x
        x = self.conv(self.activation(x))
        if self.use_batch_norm:
            x = self.norm(x)
        return x + residual


class RunningScale(nn.Module):
    """Statistics of its own: a running maximum and a count of batches."""

    def __init__(self, channels=8, momentum=0.1):
        super().__init__()
        self.momentum = momentum
        self.register_buffer("largest", torch.ones(channels))
        self.register_buffer("batches", torch.tensor(0))

    def forward(self, x):
        if self.training:
            seen = x.detach().abs().amax(dim=(0, 2, 3))
            self.largest.mul_(1 - self.momentum).add_(self.momentum * seen.to(self.largest.dtype))
            self.batches += 1
        return x / self.largest.to(x.dtype)[None, :, None, None]


class SqueezeExcite(nn.Module):
    def __init__(self, channels=8):
        super().__init__()
        self.reduce = nn.Conv2d(channels, channels // 2, 1)
        self.expand = nn.Conv2d(channels // 2, channels, 1)

    def forward(self, x):
        gate = x.mean((2, 3), keepdim=True)
        gate = torch.sigmoid(self.expand(F.silu(self.reduce(gate))))
        return x * gate


class Pyramid(nn.Module):
    """Upsampling and a sum of neighbouring levels."""

    def __init__(self, channels=8):
        super().__init__()
        self.lateral = nn.Conv2d(channels, channels, 1)
        self.smooth = nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        coarse = F.max_pool2d(x, 2)
        fine = self.lateral(x)
        fine = fine + F.interpolate(
            coarse, size=fine.shape[-2:], mode="bilinear", align_corners=False
        )
        return self.smooth(fine)
