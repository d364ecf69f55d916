"""The processes of each launcher share a budget, and compute the bits of plain training."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
RAY = """
import sys
from pathlib import Path

import ray
from ray.train import ScalingConfig
from ray.train.torch import TorchTrainer


def loop(config: dict[str, str]) -> None:
    sys.path.append(config["sources"])
    import launched

    launched.compare(launched.ddp, Path(config["folder"]))


ray.init(num_cpus=4, include_dashboard=False)
trainer = TorchTrainer(
    loop,
    train_loop_config={"sources": sys.argv[1], "folder": sys.argv[2]},
    scaling_config=ScalingConfig(num_workers=2),
)
trainer.fit()
"""


def check(command: list[object], folder: Path) -> None:
    done = subprocess.run(
        [*map(str, command), str(folder)], capture_output=True, text=True, timeout=300, cwd=folder
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    reported = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]
    assert all(rank["same"] for rank in reported), reported
    assert sum(rank["replays"] for rank in reported) > 0, reported
    assert sum(rank["most"] for rank in reported) > reported[0]["total"] // 2, reported


@pytest.mark.parametrize("program", ["ddp", "accelerated", "tensor_parallel"])
def test_torchrun(program: str, tmp_path: Path) -> None:
    check([*TORCHRUN, FOLDER / "launched.py", program], tmp_path)


def test_ray_train(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(RAY)
    check([sys.executable, script, FOLDER], tmp_path)
