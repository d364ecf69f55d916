"""Trains a ResNet with BatchNorm and in-place ReLU on scikit-learn's handwritten digits.

    python examples/digits_resnet.py --steps 50
    python examples/digits_resnet.py --steps 50 --budget 60MB --compare

The model, the data and the training loop are plain PyTorch without any reference to a budget. All
that recoup needs is in `main_of` of trained.py: an import, a `with` line and, optionally, a report.
The model is written out here instead of imported from recoup.bench.nets, so that the example is
complete.
"""

import time

import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import Tensor, nn
from trained import Trained, main_of

BATCH = 256
WIDTHS = (32, 64)
BLOCKS = 8  # of each width


class Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.shortcut = (
            nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride)
        )

    def forward(self, x: Tensor) -> Tensor:
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.norm2(self.conv2(out))
        out += self.shortcut(x)
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, WIDTHS[0], 3, padding=1)]
        inputs = WIDTHS[0]
        for width in WIDTHS:
            for index in range(BLOCKS):
                stride = 2 if index == 0 and width != WIDTHS[0] else 1
                layers.append(Block(inputs, width, stride))
                inputs = width
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(inputs, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.head(self.layers(images).mean((2, 3)))


def train(steps: int, seed: int, quiet: bool = False) -> Trained:
    """An ordinary training loop."""
    torch.manual_seed(seed)
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
    labels = torch.tensor(digits.target)

    model = ResNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    trained = Trained(model, optimizer)
    for step in range(steps):
        start = time.perf_counter()
        chosen = torch.randint(len(images), (BATCH,))
        loss = F.cross_entropy(model(images[chosen]), labels[chosen])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trained.losses.append(loss.item())
        trained.seconds.append(time.perf_counter() - start)
        if not quiet:
            print(f"step {step}: loss {trained.losses[-1]:.4f}", flush=True)
    return trained


if __name__ == "__main__":
    raise SystemExit(main_of(train, "Trains a ResNet on scikit-learn's digits."))
