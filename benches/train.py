"""Trains the two models of `predicted.py`, with torch, and saves snapshots of every iteration.

    python benches/train.py DATA OUT [--optimizer momentum|adamw] [--early N] [--cadence N]

DATA holds the MNIST test images and tinyshakespeare.txt. OUT gets .npz files, one a
snapshot: `model.*` are weights, `opt.*` the optimizer's state.
"""

from __future__ import annotations

import argparse
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class LeNet(nn.Module):  # type: ignore[misc]
    """LeNet-5 for 28x28 images of one channel."""

    def __init__(self) -> None:
        super().__init__()
        self.c1, self.c2 = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.f1, self.f2, self.f3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(F.relu(self.c1(x)), 2)
        x = F.max_pool2d(F.relu(self.c2(x)), 2).flatten(1)
        out: torch.Tensor = self.f3(F.relu(self.f2(F.relu(self.f1(x)))))
        return out


class CharGpt(nn.Module):  # type: ignore[misc]
    """A GPT of two layers over characters."""

    def __init__(self, characters: int, width: int = 96, context: int = 64) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(characters, width), nn.Embedding(context, width)
        layer = nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", 1e-5, True, True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(width, characters)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        h = self.token(x) + self.place(torch.arange(x.shape[1]))
        out: torch.Tensor = self.head(self.layers(h, mask=mask, is_causal=True))
        return out


def digits(data: Path) -> tuple[torch.Tensor, torch.Tensor]:
    """Return images (n, 1, 28, 28) from 0 to 1, and labels."""
    names = ("images-idx3", "labels-idx1")
    files = [(data / f"mnist-t10k-{name}-ubyte.gz").read_bytes() for name in names]
    raw = [np.frombuffer(gzip.decompress(file), np.uint8) for file in files]
    images = torch.tensor(raw[0][16:].reshape(-1, 1, 28, 28)).float() / 255
    return images, torch.tensor(raw[1][8:].astype(np.int64))


def momentum(data: Path) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    images, labels = digits(data)
    model = LeNet()
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9, weight_decay=5e-4)

    def loss() -> torch.Tensor:
        batch = torch.randint(len(labels), (64,))
        return F.cross_entropy(model(images[batch]), labels[batch])

    return model, optimizer, loss


def adamw(data: Path) -> tuple[nn.Module, torch.optim.Optimizer, Any]:
    text = (data / "tinyshakespeare.txt").read_text()
    known = {character: i for i, character in enumerate(sorted(set(text)))}
    tokens = torch.tensor([known[character] for character in text])
    model = CharGpt(len(known))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.1)

    def loss() -> torch.Tensor:
        at = torch.randint(len(tokens) - 65, (16, 1)) + torch.arange(65)
        out = model(tokens[at[:, :-1]])
        return F.cross_entropy(out.flatten(0, 1), tokens[at[:, 1:]].flatten())

    return model, optimizer, loss


def snapshot(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    state = {f"model.{name}": value.numpy().copy() for name, value in model.state_dict().items()}
    for name, parameter in model.named_parameters():
        for kind, value in optimizer.state[parameter].items():
            if isinstance(value, torch.Tensor):
                state[f"opt.{kind}.{name}"] = value.numpy().copy()
    return state


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--optimizer", choices=("momentum", "adamw"), default="momentum")
    parser.add_argument("--early", type=int, default=20, help="iterations before the first")
    parser.add_argument("--cadence", type=int, default=1, help="iterations between snapshots")
    parser.add_argument("--snapshots", type=int, default=8)
    args = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model, optimizer, loss = (momentum if args.optimizer == "momentum" else adamw)(args.data)
    args.out.mkdir(parents=True, exist_ok=True)
    for iteration in range(args.early + args.snapshots * args.cadence):
        if iteration >= args.early and (iteration - args.early) % args.cadence == 0:
            np.savez(args.out / f"{iteration:06d}.npz", **snapshot(model, optimizer))
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()


if __name__ == "__main__":
    main()
