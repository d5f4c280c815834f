"""The networks of ``own_strangers``: one of each field, small."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
import torchvision.ops  # noqa: F401 - says how nms is exported
from torch import Tensor, nn


class ProjectedLstm(nn.Module):
    """An LSTM of one cell after another whose state is projected, as in recognisers of speech."""

    def __init__(self) -> None:
        super().__init__()
        self.gates, self.project = nn.Linear(40 + 24, 4 * 64), nn.Linear(64, 24, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        state, cell, states = torch.zeros(1, 24), torch.zeros(1, 64), []
        for step in x.unbind(1):
            opened, kept, fresh, shown = self.gates(torch.cat([step, state], 1)).chunk(4, 1)
            cell = torch.sigmoid(kept) * cell + torch.sigmoid(opened) * torch.tanh(fresh)
            state = self.project(torch.sigmoid(shown) * torch.tanh(cell))
            states.append(state)
        return torch.stack(states, 1)


class CausalConvolutions(nn.Module):
    """Dilated convolutions with gates and weight norm, padded on the left."""

    def __init__(self) -> None:
        super().__init__()
        norm = nn.utils.parametrizations.weight_norm
        self.layers = nn.ModuleList(norm(nn.Conv1d(20, 40, 3, dilation=2**k)) for k in range(4))
        self.last = nn.Conv1d(20, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        for k, layer in enumerate(self.layers):
            x = x + F.glu(layer(F.pad(x, (2 * 2**k, 0))), 1)
        return self.last(x.flip(2))


class Residual(nn.Module):
    """Two convolutions with group norms that take a time embedding."""

    def __init__(self, width: int, channels: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(width, channels, 3, padding=1), nn.Conv2d(channels, channels, 3, padding=1)
        self.norms = nn.ModuleList([nn.GroupNorm(4, width), nn.GroupNorm(4, channels)])
        self.time, self.skip = nn.Linear(32, 2 * channels), nn.Conv2d(width, channels, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        scale, shift = self.time(time)[:, :, None, None].chunk(2, 1)
        y = self.norms[1](self.first(F.silu(self.norms[0](x)))) * (1 + scale) + shift
        return self.skip(x) + self.second(F.silu(y))


class DiffusionUnet(nn.Module):
    """A denoiser: sinusoids of the time, residual blocks, attention at the bottom, a skip."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down, self.bottom = nn.Conv2d(3, 16, 3, padding=1), Residual(16, 32), Residual(32, 32)
        self.attend, self.up, self.last = nn.MultiheadAttention(32, 4), Residual(64, 16), nn.Conv2d(16, 3, 3, padding=1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        angles = time[:, None] * torch.exp(torch.arange(16) * (-math.log(10000.0) / 16))
        told = torch.cat([angles.sin(), angles.cos()], -1)
        skip = self.down(self.first(x), told)
        y = self.bottom(F.avg_pool2d(skip, 2), told)
        tokens = y.flatten(2).permute(2, 0, 1)
        y = y + self.attend(tokens, tokens, tokens, need_weights=False)[0].permute(1, 2, 0).reshape(y.shape)
        return self.last(self.up(torch.cat([F.interpolate(y, scale_factor=2.0), skip], 1), told))


class MessagePassing(nn.Module):
    """Messages along edges, summed at their ends."""

    def __init__(self) -> None:
        super().__init__()
        self.message, self.update = nn.Linear(32, 24), nn.GRUCell(24, 16)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        for _ in range(3):
            told = F.relu(self.message(torch.cat([nodes[edges[0]], nodes[edges[1]]], -1)))
            summed = torch.zeros(nodes.shape[0], 24).index_add(0, edges[1], told)
            nodes = self.update(summed, nodes)
        return nodes.mean(0)


class GraphAttention(nn.Module):
    """A softmax over the edges that end at each node."""

    def __init__(self) -> None:
        super().__init__()
        self.value, self.score = nn.Linear(16, 16), nn.Linear(32, 1)

    def forward(self, nodes: Tensor, edges: Tensor) -> Tensor:
        source, end = edges[0], edges[1]
        score = F.leaky_relu(self.score(torch.cat([nodes[source], nodes[end]], -1)), 0.2)
        most = torch.full((nodes.shape[0], 1), -1e9).scatter_reduce(0, end[:, None], score, "amax")
        weight = torch.exp(score - most[end])
        total = torch.zeros(nodes.shape[0], 1).scatter_add(0, end[:, None], weight)
        told = self.value(nodes)[source] * (weight / (total[end] + 1e-9))
        return torch.zeros_like(nodes).scatter_add(0, end[:, None].expand_as(told), told)


class DetectionHead(nn.Module):
    """Anchors, boxes of them, the best of each class and non-maximum suppression."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 4, 1), nn.ReLU(), nn.Conv2d(16, 24, 3, 2, 1), nn.ReLU())
        self.head = nn.Conv2d(24, 3 * 9, 1)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        told = self.head(self.body(x)).view(1, 3, 9, 8, 8).permute(0, 1, 3, 4, 2).reshape(-1, 9)
        rows, columns = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
        middle = torch.stack([columns, rows], -1).view(1, -1, 2).repeat(3, 1, 1).view(-1, 2) * 8 + 4
        middle, size = middle + told[:, :2].tanh() * 4, 12 * told[:, 2:4].exp().clamp(max=4)
        boxes = torch.cat([middle - size / 2, middle + size / 2], -1)
        scores, kind = (told[:, 4:5].sigmoid() * told[:, 5:].softmax(-1)).max(-1)
        scores, order = scores.topk(50)
        boxes, kind = boxes[order], kind[order]
        kept = torch.ops.torchvision.nms(boxes + 200.0 * kind[:, None].float(), scores, 0.5)[:10]
        return boxes[kept], scores[kept], kind[kept]


class Spectrogram(nn.Module):
    """A log spectrogram and a recurrent layer over it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mel", torch.rand(40, 201))
        self.convolve, self.layer, self.last = (
            nn.Conv1d(40, 48, 5, 2),
            nn.GRU(48, 32, bidirectional=True),
            nn.Linear(64, 9),
        )

    def forward(self, sound: Tensor) -> Tensor:
        window = torch.hann_window(400)
        parts = torch.stft(sound, 400, 160, window=window, center=True, return_complex=False)
        power = torch.log(self.mel @ parts.pow(2).sum(-1) + 1e-6)
        power = (power - power.mean(2, keepdim=True)) / (power.std(2, keepdim=True) + 1e-5)
        return self.last(self.layer(F.gelu(self.convolve(power)).permute(2, 0, 1))[0]).log_softmax(-1)


class AttentionCnn(nn.Module):
    """Convolutions with squeeze and excitation, then attention over positions."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 32, 7, 2, 3), nn.InstanceNorm2d(32, affine=True), nn.PReLU(32))
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(32, 8, 1), nn.Hardswish(), nn.Conv2d(8, 32, 1))
        self.block, self.last = nn.TransformerEncoderLayer(32, 4, 64, activation="gelu"), nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.body(x)
        x = F.adaptive_avg_pool2d(x * torch.sigmoid(self.squeeze(x)), (6, 8))
        return self.last(self.block(x.flatten(2).permute(2, 0, 1)).amax(0))


class Branch(nn.Module):
    """One of two networks, by the sign of the mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 16), nn.Sequential(nn.Linear(32, 8), nn.ELU(), nn.Linear(8, 16))

    def forward(self, x: Tensor) -> Tensor:
        if bool(x.mean() > 0):  # noqa: SIM108 - a scripted branch
            y = self.first(x)
        else:
            y = self.second(x)
        return y.sum(-1)


class ScriptedLoop(nn.Module):
    """A cell that is applied to step after step by a loop of TorchScript."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.gate = nn.Linear(24 + 32, 32), nn.Linear(24 + 32, 32)

    def forward(self, x: Tensor) -> Tensor:
        state = torch.zeros(x.size(1), 32)
        for step in range(x.size(0)):
            both = torch.cat([x[step], state], -1)
            gate = torch.sigmoid(self.gate(both))
            state = gate * state + (1 - gate) * torch.tanh(self.inner(both))
        return state


class ListOfHeads(nn.Module):
    """A list that grows in a loop and is stacked."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(10, 6)

    def forward(self, x: Tensor) -> Tensor:
        answers: list[Tensor] = []
        for part in torch.split(x, 10, dim=2):
            answers.append(self.layer(part).relu())  # noqa: PERF401 - a scripted list
        return torch.stack(answers, dim=1).flatten(2)


class Splines(nn.Module):
    """B-splines of every input, as Kolmogorov-Arnold networks have."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("knots", torch.linspace(-2.5, 2.5, 12))
        self.weight, self.base = nn.Parameter(torch.randn(7, 12, 8)), nn.Linear(12, 7)

    def forward(self, x: Tensor) -> Tensor:
        t, at = self.knots, x[..., None]
        basis = ((at >= t[:-1]) & (at < t[1:])).to(x.dtype)
        for k in range(1, 4):
            left = (at - t[: -(k + 1)]) / (t[k:-1] - t[: -(k + 1)]) * basis[..., :-1]
            right = (t[k + 1 :] - at) / (t[k + 1 :] - t[1:-k]) * basis[..., 1:]
            basis = left + right
        return self.base(F.silu(x)) + torch.einsum("big,oig->bo", basis, self.weight)


class OdeSteps(nn.Module):
    """Runge-Kutta steps of a learned field."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(17, 32), nn.Tanh(), nn.Linear(32, 16))

    def slope(self, y: Tensor, time: float) -> Tensor:
        return self.field(torch.cat([y, torch.full_like(y[:, :1], time)], 1))

    def forward(self, y: Tensor) -> Tensor:
        step = 0.125
        for k in range(8):
            a = self.slope(y, k * step)
            b = self.slope(y + step / 2 * a, k * step + step / 2)
            c = self.slope(y + step / 2 * b, k * step + step / 2)
            d = self.slope(y + step * c, k * step + step)
            y = y + step / 6 * (a + 2 * b + 2 * c + d)
        return y


class RadianceField(nn.Module):
    """Positions to sines, colours and densities, and their sum along rays."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.last = nn.Sequential(nn.Linear(39, 64), nn.GELU(), nn.Linear(64, 64)), nn.Linear(64, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        turned = (x[..., None] * 2.0 ** torch.arange(6)).flatten(-2)
        told = self.last(F.gelu(self.body(torch.cat([x, turned.sin(), turned.cos()], -1)), approximate="tanh"))
        gap = (x[:, 1:] - x[:, :-1]).norm(dim=-1)
        density = F.softplus(told[:, :-1, 3]) * gap
        passed = torch.exp(-torch.cumsum(F.pad(density, (1, 0))[:, :-1], 1))
        weight = passed * (1 - torch.exp(-density))
        return (weight[..., None] * told[:, :-1, :3].sigmoid()).sum(1), weight.argmax(1)


class PointNeighbours(nn.Module):
    """Edge convolutions over the nearest neighbours of points."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 32), nn.Linear(64, 64), nn.Linear(64, 10)

    def edge(self, x: Tensor, layer: nn.Linear) -> Tensor:
        near = torch.cdist(x, x).topk(8, largest=False).indices
        batch, count, width = x.shape
        index = near.reshape(batch, -1, 1).expand(-1, -1, width)
        neighbours = x.gather(1, index).view(batch, count, 8, width)
        middle = x[:, :, None].expand_as(neighbours)
        return F.leaky_relu(layer(torch.cat([middle, neighbours - middle], -1)), 0.2).max(2).values

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.edge(self.edge(x, self.first), self.second).max(1).values)


class SuperResolution(nn.Module):
    """Reflected borders, pixel shuffle and a bicubic skip."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 24, 5), nn.Conv2d(24, 3 * 9, 3)
        self.third = nn.ConvTranspose2d(24, 3, 7, 3, padding=2, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.mish(self.first(F.pad(x, (2, 2, 2, 2), mode="reflect")))
        shuffled = F.pixel_shuffle(self.second(F.pad(y, (1, 1, 1, 1), mode="replicate")), 3)
        skip = F.interpolate(x, size=shuffled.shape[2:], mode="bicubic", align_corners=False)
        return torch.clamp(shuffled + skip + self.third(y), 0.0, 1.0)


class OpticalFlow(nn.Module):
    """All-pairs correlation and warping by the flow that it suggests."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.flow = nn.Conv2d(3, 16, 4, 4), nn.Conv2d(96, 2, 3, padding=1)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        a, b = self.body(x), self.body(y)
        batch, width, high, wide = a.shape
        likeness = torch.einsum("bcn,bcm->bnm", a.flatten(2), b.flatten(2)) / width**0.5
        flow = self.flow(likeness.softmax(-1).transpose(1, 2).reshape(batch, high * wide, high, wide))
        rows, columns = torch.meshgrid(torch.linspace(-1, 1, high), torch.linspace(-1, 1, wide), indexing="ij")
        at = torch.stack([columns, rows], -1)[None] + flow.permute(0, 2, 3, 1)
        warped = F.grid_sample(b, at, mode="bilinear", padding_mode="border", align_corners=True)
        return F.interpolate(flow + (a - warped).mean(1, keepdim=True), scale_factor=4.0, mode="bilinear")


class TextLineReader(nn.Module):
    """Convolutions, recurrent layers both ways, and the letters of a greedy decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(1, 16, 3, padding=1), nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Conv2d(16, 32, 3, padding=1)),
            *(nn.ReLU6(), nn.MaxPool2d((2, 1)), nn.Conv2d(32, 48, (8, 1)), nn.BatchNorm2d(48)),
        )
        self.layer, self.last = nn.LSTM(48, 32, 2, bidirectional=True), nn.Linear(64, 30)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps = self.body(x).squeeze(2).permute(2, 0, 1)
        scores = self.last(self.layer(steps)[0])
        best = scores.argmax(-1)
        fresh = torch.cat([torch.ones_like(best[:1], dtype=torch.bool), best[1:] != best[:-1]])
        return scores.log_softmax(-1), torch.where(fresh, best, torch.zeros_like(best))


class Ranking(nn.Module):
    """Tables of features, their products in pairs, and hashed identifiers."""

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(64, 16) for _ in range(6))
        self.hashed, self.dense, self.last = nn.EmbeddingBag(32, 16, mode="sum"), nn.Linear(13, 16), nn.Linear(44, 1)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        first = F.relu(self.dense(dense))
        rows = [table(ids[:, k]) for k, table in enumerate(self.tables)]
        rows.append(self.hashed((ids * 37 + 11) % 32))
        both = torch.stack([first, *rows], 1)
        pairs = both @ both.transpose(1, 2)
        upper, lower = torch.triu_indices(8, 8, 1)
        return torch.sigmoid(self.last(torch.cat([first, pairs[:, upper, lower]], 1)))


class SpeechSeparation(nn.Module):
    """Masks over a learned basis of short windows."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Conv1d(1, 64, 16, 8, bias=False), nn.ConvTranspose1d(64, 1, 16, 8, bias=False)
        self.norm, self.inner = nn.GroupNorm(1, 64, eps=1e-8), nn.Conv1d(64, 64, 3, padding=2, dilation=2, groups=64)
        self.act, self.mask = nn.PReLU(), nn.Conv1d(64, 128, 1)

    def forward(self, sound: Tensor) -> Tensor:
        basis = F.relu(self.encode(sound[:, None]))
        masks = torch.sigmoid(self.mask(self.act(self.inner(self.norm(basis)))))
        both = basis[:, None] * masks.view(1, 2, 64, -1)
        return self.decode(both.flatten(0, 1)).view(1, 2, -1)


class MixtureOfExperts(nn.Module):
    """Two of four experts for every token."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(48, 4)
        self.up, self.down = nn.Parameter(torch.randn(4, 48, 64) / 7), nn.Parameter(torch.randn(4, 64, 48) / 8)

    def forward(self, x: Tensor) -> Tensor:
        weight, index = self.router(x).softmax(-1).topk(2)
        weight = weight / weight.sum(-1, keepdim=True)
        share = torch.zeros(*x.shape[:2], 4).scatter(2, index, weight)
        inner = F.silu(torch.einsum("btd,edf->btef", x, self.up))
        return x + torch.einsum("btef,efd,bte->btd", inner, self.down, share)


class FourierOperator(nn.Module):
    """Products of the lowest frequencies with learned complex weights, and the power that they have."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.last = nn.Conv2d(2, 8, 1), nn.Linear(8 * 36, 10)
        self.weight = nn.Parameter(torch.randn(8, 8, 6, 6, 2) / 8)

    def forward(self, x: Tensor) -> Tensor:
        seen = torch.view_as_real(torch.fft.rfft2(self.lift(x), norm="ortho"))[:, :, :6, :6]
        real, other, w = seen[..., 0], seen[..., 1], self.weight
        turned = torch.einsum("bixy,ioxy->boxy", real, w[..., 0]) - torch.einsum("bixy,ioxy->boxy", other, w[..., 1])
        again = torch.einsum("bixy,ioxy->boxy", real, w[..., 1]) + torch.einsum("bixy,ioxy->boxy", other, w[..., 0])
        return self.last(torch.log1p(turned.square() + again.square()).flatten(1))


class Codebook(nn.Module):
    """The nearest word of a codebook for each position."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Conv2d(3, 16, 4, 4), nn.ConvTranspose2d(16, 3, 4, 4)
        self.words = nn.Embedding(64, 16)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        rows = self.encode(x).permute(0, 2, 3, 1)
        words = self.words.weight
        far = rows.pow(2).sum(-1, keepdim=True) - 2 * rows @ words.t() + words.pow(2).sum(1)
        index = far.argmin(-1)
        return self.decode(self.words(index).permute(0, 3, 1, 2)), index


class FakeQuantised(nn.Module):
    """Rounding as in training that knows of quantisation, of each tensor and of each channel."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 16, 3, 2, 1, groups=16)
        self.register_buffer("scales", torch.rand(16) / 100 + 0.002)

    def weight(self, layer: nn.Conv2d) -> Tensor:
        zero = torch.zeros(16, dtype=torch.int32)
        return torch.fake_quantize_per_channel_affine(layer.weight, self.scales, zero, 0, -128, 127)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.fake_quantize_per_tensor_affine(x, 0.03, 128, 0, 255)
        x = F.relu(F.conv2d(x, self.weight(self.first), self.first.bias, padding=1))
        x = torch.fake_quantize_per_tensor_affine(x, 0.02, 0, 0, 255)
        x = F.conv2d(x, self.weight(self.second), self.second.bias, 2, 1, groups=16)
        return torch.fake_quantize_per_tensor_affine(x, 0.05, 128, 0, 255).mean((2, 3))


class Capsules(nn.Module):
    """Routing by agreement between capsules."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 16, 9), nn.Conv2d(16, 32, 9, 2)
        self.weight = nn.Parameter(torch.randn(10, 144, 8, 4) / 10)

    def squash(self, x: Tensor) -> Tensor:
        square = x.pow(2).sum(-1, keepdim=True)
        return square / (1 + square) * x / (square + 1e-8).sqrt()

    def forward(self, x: Tensor) -> Tensor:
        told = self.squash(self.second(F.relu(self.first(x))).view(x.size(0), -1, 8))
        votes = torch.einsum("bnd,knde->bkne", told, self.weight)
        logits = torch.zeros(votes.shape[:3])
        for _ in range(3):
            squashed = self.squash((logits.softmax(1)[..., None] * votes).sum(2))
            logits = logits + (votes * squashed[:, :, None]).sum(-1)
        return squashed.norm(dim=-1)


class DynamicFilters(nn.Module):
    """A filter for each image, made of that image, applied by groups."""

    def __init__(self) -> None:
        super().__init__()
        self.make = nn.Linear(8, 8 * 9)

    def forward(self, x: Tensor) -> Tensor:
        batch, width, high, wide = x.shape
        filters = self.make(x.mean((2, 3))).view(batch * width, 1, 3, 3).softmax(-1)
        filtered = F.conv2d(x.reshape(1, batch * width, high, wide), filters, padding=1, groups=batch * width)
        return F.unfold(filtered.view(batch, width, high, wide), 2, stride=2)


class UnpoolingSegmenter(nn.Module):
    """Poolings that keep where the largest was, and their inverse."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Conv2d(8, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y, where = F.max_pool2d(F.relu(self.first(x)), 2, return_indices=True)
        told = F.celu(self.second(y)).flatten(2)
        y = torch.zeros(x.shape[0], 8, x.shape[2] * x.shape[3]).scatter(2, where.flatten(2), told)
        y = y.view(x.shape[0], 8, x.shape[2], x.shape[3])
        y = F.local_response_norm(y, 3)
        return self.last(y).softmax(1)
