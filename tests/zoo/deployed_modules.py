"""Modules of PyTorch for ``deployed``: networks that people deploy and no package of models has, at real widths."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from torch import nn
from torch.nn import functional


class ConvUnit(nn.Sequential):
    """A convolution, its batch norm and SiLU."""

    def __init__(self, inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1) -> None:
        convolution = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        super().__init__(convolution, nn.BatchNorm2d(outputs), nn.SiLU())


class SplitBlock(nn.Module):
    """A split of the channels, bottlenecks on one half, and a join of all parts (the C2f and C3k2 blocks)."""

    def __init__(self, inputs: int, outputs: int, count: int, shortcut: bool = True, share: float = 0.5) -> None:
        super().__init__()
        self.width = int(outputs * share)
        self.first = ConvUnit(inputs, 2 * self.width)
        self.last = ConvUnit((2 + count) * self.width, outputs)
        pairs = [
            (ConvUnit(self.width, self.width // 2, 3), ConvUnit(self.width // 2, self.width, 3)) for _ in range(count)
        ]
        self.blocks = nn.ModuleList(nn.Sequential(*pair) for pair in pairs)
        self.shortcut = shortcut

    def forward(self, x: Any) -> Any:
        parts = [*self.first(x).chunk(2, 1)]
        for block in self.blocks:
            added = block(parts[-1])
            parts.append(parts[-1] + added if self.shortcut else added)
        return self.last(torch.cat(parts, 1))


class PooledPyramid(nn.Module):
    """Three poolings in a row, joined (SPPF)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = ConvUnit(width, width // 2), ConvUnit(width * 2, width)

    def forward(self, x: Any) -> Any:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(functional.max_pool2d(parts[-1], 5, 1, 2))
        return self.last(torch.cat(parts, 1))


class PositionAttention(nn.Module):
    """Attention over positions with a depthwise convolution of the values (the C2PSA block)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.of_key, self.of_value = heads, width // heads // 2, width // heads
        self.joint = nn.Conv2d(width, heads * (2 * self.of_key + self.of_value), 1)
        self.place = nn.Conv2d(width, width, 3, 1, 1, groups=width)
        self.out = nn.Conv2d(width, width, 1)

    def forward(self, x: Any) -> Any:
        batch, width, rows, columns = x.shape
        joint = self.joint(x).view(batch, self.heads, 2 * self.of_key + self.of_value, rows * columns)
        query, key, value = joint.split([self.of_key, self.of_key, self.of_value], 2)
        weights = (query.transpose(-2, -1) @ key * self.of_key**-0.5).softmax(-1)
        mixed = (value @ weights.transpose(-2, -1)).view(batch, width, rows, columns)
        return x + self.out(mixed + self.place(value.reshape(batch, width, rows, columns)))


class Detector(nn.Module):
    """A one-stage detector without anchors: split blocks, a pyramid both ways, boxes as distributions (YOLO 11 n)."""

    def __init__(self, classes: int = 80) -> None:
        super().__init__()
        self.stem = nn.Sequential(ConvUnit(3, 16, 3, 2), ConvUnit(16, 32, 3, 2), SplitBlock(32, 64, 1, share=0.25))
        self.third = nn.Sequential(ConvUnit(64, 64, 3, 2), SplitBlock(64, 128, 1, share=0.25))
        self.fourth = nn.Sequential(ConvUnit(128, 128, 3, 2), SplitBlock(128, 128, 1))
        self.fifth = nn.Sequential(
            *(ConvUnit(128, 256, 3, 2), SplitBlock(256, 256, 1), PooledPyramid(256), PositionAttention(256, 4))
        )
        self.up4, self.up3 = SplitBlock(384, 128, 1, False), SplitBlock(256, 64, 1, False)
        self.down4, self.down5 = ConvUnit(64, 64, 3, 2), ConvUnit(128, 128, 3, 2)
        self.out4, self.out5 = SplitBlock(192, 128, 1, False), SplitBlock(384, 256, 1)
        widths = (64, 128, 256)
        self.boxes = nn.ModuleList(
            nn.Sequential(ConvUnit(width, 64, 3), ConvUnit(64, 64, 3), nn.Conv2d(64, 64, 1)) for width in widths
        )
        self.classes = nn.ModuleList(
            nn.Sequential(
                *(ConvUnit(width, width, 3, groups=width), ConvUnit(width, 80)),
                *(ConvUnit(80, 80, 3, groups=80), ConvUnit(80, 80), nn.Conv2d(80, classes, 1)),
            )
            for width in widths
        )

    def forward(self, x: Any) -> Any:
        third = self.third(self.stem(x))
        fourth = self.fourth(third)
        fifth = self.fifth(fourth)
        up4 = self.up4(torch.cat([functional.interpolate(fifth, scale_factor=2.0), fourth], 1))
        up3 = self.up3(torch.cat([functional.interpolate(up4, scale_factor=2.0), third], 1))
        out4 = self.out4(torch.cat([self.down4(up3), up4], 1))
        out5 = self.out5(torch.cat([self.down5(out4), fifth], 1))
        boxes, scores = [], []
        for level, box, score, stride in zip((up3, out4, out5), self.boxes, self.classes, (8, 16, 32), strict=True):
            rows, columns = level.shape[2:]
            bins = box(level).view(-1, 4, 16, rows * columns).softmax(2)
            sides = (bins * torch.arange(16.0).view(1, 1, 16, 1)).sum(2)
            grid = (
                torch.stack(torch.meshgrid(torch.arange(columns), torch.arange(rows), indexing="xy")).flatten(1) + 0.5
            )
            low, high = grid - sides[:, :2], grid + sides[:, 2:]
            boxes.append(torch.cat([(low + high) / 2, high - low], 1) * stride)
            scores.append(score(level).flatten(2).sigmoid())
        return torch.cat([torch.cat(boxes, 2), torch.cat(scores, 2)], 1)


class FaceEmbedding(nn.Module):
    """Residual blocks of PReLU and batch norms, and an embedding of 512 (ArcFace on ResNet-18)."""

    class Block(nn.Module):
        """Two convolutions between batch norms."""

        def __init__(self, inputs: int, outputs: int, stride: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                *(nn.BatchNorm2d(inputs), nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)),
                *(nn.PReLU(outputs), nn.Conv2d(outputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)),
            )
            same = stride == 1 and inputs == outputs
            shrink = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
            self.skip: Any = nn.Identity() if same else shrink

        def forward(self, x: Any) -> Any:
            return self.body(x) + self.skip(x)

    def __init__(self) -> None:
        super().__init__()
        widths = (64, 64, 128, 256, 512)
        blocks: list[nn.Module] = []
        for before, width in itertools.pairwise(widths):
            blocks += [self.Block(before, width, 2), self.Block(width, width, 1)]
        self.body = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64), *blocks)
        self.last = nn.Sequential(nn.BatchNorm2d(512), nn.Flatten(), nn.Linear(512 * 49, 512), nn.BatchNorm1d(512))

    def forward(self, x: Any) -> Any:
        return functional.normalize(self.last(self.body(x)))


class NestedUnet(nn.Module):
    """Two stages of a U-Net whose stages are U-Nets with dilations (U²-Net, small)."""

    class Stage(nn.Module):
        """A U-Net of ``depth`` levels and its own input added."""

        def __init__(self, inputs: int, middle: int, outputs: int, depth: int) -> None:
            super().__init__()

            def unit(first: int, second: int, dilation: int = 1) -> nn.Sequential:
                convolution = nn.Conv2d(first, second, 3, 1, dilation, dilation)
                return nn.Sequential(convolution, nn.BatchNorm2d(second), nn.ReLU())

            self.first = unit(inputs, outputs)
            self.down = nn.ModuleList(unit(outputs if not level else middle, middle) for level in range(depth))
            self.bottom = unit(middle, middle, 2)
            self.up = nn.ModuleList(unit(2 * middle, middle if level else outputs) for level in range(depth))

        def forward(self, x: Any) -> Any:
            x = first = self.first(x)
            kept = []
            for level, down in enumerate(self.down):
                x = down(x if not level else functional.max_pool2d(x, 2, 2, ceil_mode=True))
                kept.append(x)
            x = self.bottom(x)
            for level in reversed(range(len(kept))):
                x = functional.interpolate(x, size=kept[level].shape[2:], mode="bilinear", align_corners=False)
                x = self.up[level](torch.cat([x, kept[level]], 1))
            return x + first

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.three = self.Stage(3, 16, 64, 6), self.Stage(64, 16, 64, 5), self.Stage(64, 16, 64, 4)
        self.back2, self.back1 = self.Stage(128, 16, 64, 5), self.Stage(128, 16, 64, 6)
        self.side = nn.Conv2d(64, 1, 3, 1, 1)

    def forward(self, x: Any) -> Any:
        one = self.one(x)
        two = self.two(functional.max_pool2d(one, 2, 2))
        three = self.three(functional.max_pool2d(two, 2, 2))
        three = functional.interpolate(three, size=two.shape[2:], mode="bilinear", align_corners=False)
        two = self.back2(torch.cat([three, two], 1))
        two = functional.interpolate(two, size=one.shape[2:], mode="bilinear", align_corners=False)
        return self.side(self.back1(torch.cat([two, one], 1))).sigmoid()


class PlainNet(nn.Module):
    """Blocks of simple gates, norms over channels and scales of channels (NAFNet, width 32)."""

    class Block(nn.Module):
        """A depthwise part and a pointwise part, each behind a norm."""

        def __init__(self, width: int) -> None:
            super().__init__()
            self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
            self.wide, self.depth = (
                nn.Conv2d(width, 2 * width, 1),
                nn.Conv2d(2 * width, 2 * width, 3, 1, 1, groups=2 * width),
            )
            self.scale, self.narrow = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 1)
            self.up, self.down = nn.Conv2d(width, 2 * width, 1), nn.Conv2d(width, width, 1)
            self.shares = nn.ParameterList(nn.Parameter(0.1 * torch.ones(1, width, 1, 1)) for _ in range(2))

        @staticmethod
        def gate(x: Any) -> Any:
            first, second = x.chunk(2, 1)
            return first * second

        def norm(self, number: int, x: Any) -> Any:
            return self.norms[number](x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

        def forward(self, x: Any) -> Any:
            mixed = self.gate(self.depth(self.wide(self.norm(0, x))))
            x = x + self.shares[0] * self.narrow(mixed * self.scale(mixed.mean((2, 3), keepdim=True)))
            return x + self.shares[1] * self.down(self.gate(self.up(self.norm(1, x))))

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1)
        self.downs = nn.ModuleList(
            nn.Sequential(self.Block(width << level), nn.Conv2d(width << level, width << (level + 1), 2, 2))
            for level in range(3)
        )
        self.middle = nn.Sequential(self.Block(width << 3), self.Block(width << 3))
        self.ups = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width << (level + 1), width << (level + 2), 1, bias=False), nn.PixelShuffle(2))
            for level in reversed(range(3))
        )
        self.backs = nn.ModuleList(self.Block(width << level) for level in reversed(range(3)))

    def forward(self, image: Any) -> Any:
        x, kept = self.first(image), []
        for down in self.downs:
            kept.append(down[0](x))
            x = down[1](kept[-1])
        x = self.middle(x)
        for up, back in zip(self.ups, self.backs, strict=True):
            x = back(up(x) + kept.pop())
        return image + self.last(x)


class DenseUpscaler(nn.Module):
    """Dense blocks inside residual ones, and two doublings (ESRGAN, three blocks)."""

    class Dense(nn.Module):
        """Five convolutions, each of all that came before."""

        def __init__(self, width: int = 64, growth: int = 32) -> None:
            super().__init__()
            self.steps = nn.ModuleList(
                nn.Conv2d(width + step * growth, growth if step < 4 else width, 3, 1, 1) for step in range(5)
            )

        def forward(self, x: Any) -> Any:
            parts = [x]
            for step in self.steps[:4]:
                parts.append(functional.leaky_relu(step(torch.cat(parts, 1)), 0.2))
            return x + 0.2 * self.steps[4](torch.cat(parts, 1))

    def __init__(self) -> None:
        super().__init__()
        self.first, self.blocks = nn.Conv2d(3, 64, 3, 1, 1), nn.Sequential(*(self.Dense() for _ in range(3)))
        self.ups = nn.ModuleList(nn.Conv2d(64, 64, 3, 1, 1) for _ in range(2))
        self.last = nn.Sequential(nn.Conv2d(64, 64, 3, 1, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 3, 3, 1, 1))

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        x = x + self.blocks(x)
        for up in self.ups:
            x = functional.leaky_relu(up(functional.interpolate(x, scale_factor=2.0, mode="nearest")), 0.2)
        return self.last(x)


class ClickRanker(nn.Module):
    """Tables of categories, a network of the numbers, and products of all pairs (DLRM)."""

    def __init__(self, tables: int = 26, rows: int = 10000, width: int = 64) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, width) for _ in range(tables))
        self.bottom = nn.Sequential(
            *(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, width))
        )
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            *(nn.Linear(width + pairs, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 1), nn.Sigmoid())
        )
        self.rows, self.columns = torch.tril_indices(tables + 1, tables + 1, -1)

    def forward(self, numbers: Any, categories: Any) -> Any:
        dense = functional.relu(self.bottom(numbers))
        looked = [table(categories[:, number]) for number, table in enumerate(self.tables)]
        stack = torch.stack([dense, *looked], 1)
        return self.top(torch.cat([dense, (stack @ stack.transpose(1, 2))[:, self.rows, self.columns]], 1))


class TabularTransformer(nn.Module):
    """A token for each column, and a transformer over the columns (FT-Transformer)."""

    def __init__(self, columns: int = 24, width: int = 192) -> None:
        super().__init__()
        self.scale, self.shift = nn.Parameter(torch.randn(columns, width)), nn.Parameter(torch.randn(columns, width))
        self.token = nn.Parameter(torch.randn(1, 1, width))
        layer = nn.TransformerEncoderLayer(width, 8, 256, 0.0, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.ModuleList(
            type(layer)(width, 8, 256, 0.0, "gelu", batch_first=True, norm_first=True) for _ in range(3)
        )
        self.head = nn.Sequential(nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 2))

    def forward(self, x: Any) -> Any:
        tokens = x[:, :, None] * self.scale + self.shift
        tokens = torch.cat([self.token.expand(x.shape[0], -1, -1), tokens], 1)
        for layer in self.layers:
            tokens = layer(tokens)
        return self.head(tokens[:, 0])


class SpeechSynthesis(nn.Module):
    """A vocoder: transposed convolutions and dilated residual blocks (HiFi-GAN, version 2)."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.first, rates = nn.Conv1d(80, width, 7, 1, 3), ((8, 16), (8, 16), (2, 4), (2, 4))
        self.ups, self.blocks = nn.ModuleList(), nn.ModuleList()
        for level, (rate, size) in enumerate(rates):
            inputs, outputs = width >> level, width >> (level + 1)
            self.ups.append(nn.ConvTranspose1d(inputs, outputs, size, rate, (size - rate) // 2))
            self.blocks.append(
                nn.ModuleList(
                    nn.ModuleList(
                        nn.Conv1d(outputs, outputs, kernel, 1, dilation * (kernel // 2), dilation)
                        for dilation in (1, 3, 5)
                    )
                    for kernel in (3, 7, 11)
                )
            )
        self.last = nn.Conv1d(width >> 4, 1, 7, 1, 3)

    def forward(self, x: Any) -> Any:
        x = self.first(x)
        for up, level in zip(self.ups, self.blocks, strict=True):
            x = up(functional.leaky_relu(x, 0.1))
            total: Any = 0
            for block in level:
                residual = x
                for convolution in block:
                    residual = residual + convolution(functional.leaky_relu(residual, 0.1))
                total = total + residual
            x = total / len(level)
        return torch.tanh(self.last(functional.leaky_relu(x)))
