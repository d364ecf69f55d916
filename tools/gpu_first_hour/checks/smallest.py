"""The smallest training that evicts: a chain of layers in 60 % of its memory, bits compared."""

import sys

import torch
from nets import Net
from rows import report, settings
from torch import nn
from training import Job

import gpu


def _loss(model: nn.Module, batch: int, device: torch.device) -> torch.Tensor:
    return model(torch.randn(batch, 256, device=device)).square().mean()


def _make() -> nn.Module:
    layers = [
        layer for _ in range(16) for layer in (nn.Linear(256, 256), nn.GELU(), nn.Dropout(0.1))
    ]
    return nn.Sequential(*layers)


STEPS = 4
NET = Net("chain", _make, _loss, 2048, ())


def main() -> int:
    device = gpu.open_device(settings()["device"])
    gpu.make_repeatable(NET.repeatable)
    job = Job(NET, device, settings().get("steps", STEPS), NET.batch)
    plain = job.plainly()
    peak = job.peak_bytes()
    ours, stats = job.in_budget(peak * 6 // 10, check_replays=True)
    same = ours.digest == plain.digest
    report(
        "60 %",
        bits="equal" if same else "differ",
        evictions=stats.evictions,
        replays=stats.replays,
        peak_MiB=stats.peak_bytes / gpu.MIB,
    )
    if not same:
        print("bits differ from those of a plain training")
    elif stats.replays == 0:
        print("nothing was replayed")
    return int(not same or stats.replays == 0)


if __name__ == "__main__":
    sys.exit(main())
