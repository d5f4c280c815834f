"""Modules as people write them; only imported where PyTorch is installed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self, wide: int = 16) -> None:
        super().__init__()
        self.first, self.dropped, self.last = nn.Linear(8, wide), nn.Dropout(0.1), nn.Linear(wide, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.dropped(torch.relu(self.first(x))))


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(8 * 4 * 4, 5)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(image).flatten(1))


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(20, 16)
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layers(self.embed(ids))


class Broken(nn.Module):
    """Has a graph break between two products."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.last(x)


class Nested(nn.Module):
    """Takes and returns nested values: a product, a view of an input, an input, a size, integers, a value twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, batch: dict[str, Any], more: list[torch.Tensor]) -> dict[str, Any]:
        result = self.layer(batch["x"]) + more[0]
        return {
            "made": result,
            "again": result,
            "view": batch["x"].view(-1),
            "same": more[0],
            "size": batch["x"].shape[0],
            "best": (result.argmax(-1), more[1] + 1),
        }


class Tensors(nn.Module):
    """As ``Nested``, with tensors only."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, batch: dict[str, Any], more: list[torch.Tensor], scale: float = 2.0) -> dict[str, Any]:
        result = self.layer(batch["x"]) * scale
        return {"made": result, "both": (result + more[0], more[1] + 1)}


class Counting(nn.Module):
    """Counts its calls in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.layer(x) + self.calls


class Noisy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.rand_like(x)


class Refusing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.shape[0] != 2:
            raise ValueError("two rows, please")
        return x * 2
