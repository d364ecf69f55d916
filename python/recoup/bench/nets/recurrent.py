"""LSTMs: over sequences in both directions, and over trees."""

import random
from typing import Any

import torch
from torch import Tensor, nn


class BothWays(nn.Module):
    """A bidirectional LSTM layer."""

    def __init__(self, inputs: int, width: int, dropout: float) -> None:
        super().__init__()
        self.lstm = nn.LSTM(inputs, width, bidirectional=True, batch_first=True)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.lstm(x)
        out: Tensor = self.dropout(hidden)
        return out


class Tagger(nn.Module):
    """A bidirectional LSTM of two layers that classifies every token."""

    def __init__(self, width: int, vocabulary: int) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.layers = nn.Sequential(BothWays(width, width, 0.1), BothWays(2 * width, width, 0.0))
        self.out = nn.Linear(2 * width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        out: Tensor = self.out(self.layers(self.embed(tokens)))
        return out.transpose(1, 2)


class BiLSTM(nn.Module):
    """The same two layers in one module, with dropout between them."""

    def __init__(self) -> None:
        super().__init__()
        self.token = nn.Embedding(64, 48)
        self.lstm = nn.LSTM(48, 48, 2, batch_first=True, dropout=0.2, bidirectional=True)
        self.tag = nn.Sequential(nn.Linear(96, 96), nn.Tanh(), nn.Linear(96, 10))

    def forward(self, tokens: Tensor) -> Tensor:
        hidden, _ = self.lstm(self.token(tokens))
        out: Tensor = self.tag(hidden)
        return out


Tree = tuple[Any, Any] | int
"""A pair of trees, or the index of a leaf's vector."""


def random_tree(leaves: list[int], chance: random.Random) -> Tree:
    """A random binary tree over these leaves, in their order."""
    if len(leaves) == 1:
        return leaves[0]
    cut = chance.randrange(1, len(leaves))
    return random_tree(leaves[:cut], chance), random_tree(leaves[cut:], chance)


class TreeLSTM(nn.Module):
    """A binary tree-structured LSTM (Tai et al. 2015): the tree's shape is part of the input."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.leaf = nn.Linear(width, 2 * width)
        self.gates = nn.Linear(2 * width, 5 * width)
        self.head = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, 10))

    def encode(self, tree: Tree, vectors: Tensor) -> tuple[Tensor, Tensor]:
        if isinstance(tree, int):
            out, cell = self.leaf(vectors[tree]).chunk(2, dim=-1)
            return torch.sigmoid(out) * torch.tanh(cell), cell
        (left_h, left_c), (right_h, right_c) = (self.encode(child, vectors) for child in tree)
        gates = self.gates(torch.cat([left_h, right_h], dim=-1)).chunk(5, dim=-1)
        forget_left, forget_right, write, out = (torch.sigmoid(gate) for gate in gates[:4])
        cell = forget_left * left_c + forget_right * right_c + write * torch.tanh(gates[4])
        return out * torch.tanh(cell), cell

    def forward(self, tree: Tree, vectors: Tensor) -> Tensor:
        out: Tensor = self.head(self.encode(tree, vectors)[0])
        return out
