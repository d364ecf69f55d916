"""Threads make, free, draw, evict and read at random, while scopes are opened and closed.

The method is that of RMM's resource tests. All elements of a tensor are equal, so each read is a
check; the test aid `delay` makes threads wait where they meet. `pytest -m slow` runs longer.
"""

import os
import subprocess
import sys

import pytest

_PROGRAM = """
import faulthandler, random, sys, threading, time
faulthandler.dump_traceback_later(240, exit=True)
import torch, recoup
torch.set_num_threads(1)
seed, seconds = int(sys.argv[1]), float(sys.argv[2])
N, LIVE = 4096, 60
drawn = {k: torch.rand(64, generator=torch.Generator().manual_seed(k)) for k in range(20)}
kept, lock, errors, stop = [], threading.Lock(), [], False

def made(k):
    return torch.full((N,), float(k)) * 3 + k

def act(random):
    what, k = random.randrange(6), random.randrange(1000)
    if what == 0 and len(kept) < LIVE:
        kept.append((k, made(k)))
        return
    if what == 1:
        with lock:
            gone = kept.pop(random.randrange(len(kept))) if kept else None
        del gone  # without the lock
        return
    if what == 2:
        again = torch.rand(64, generator=torch.Generator().manual_seed(k % 20))
        assert torch.equal(again, drawn[k % 20]), "other numbers"
        torch.nn.functional.dropout(again, 0.5)
        return
    with lock:
        k, x = random.choice(kept) if kept else (k, None)
    if x is None:
        return
    if what == 3:
        recoup.evict(x)
    elif what == 4:
        assert float(x.sum()) == 4.0 * k * N, (k, x[0].item())
    else:
        y = x.clone().mul_(2)
        assert float(y.sum()) == 8.0 * k * N, (k, y[0].item())

def work(number, joins):
    own = random.Random(1000 * seed + number)
    try:
        with torch.no_grad():
            while not stop:
                if joins:
                    with recoup.carry():
                        for _ in range(own.randrange(1, 8)):
                            act(own)
                else:
                    x = torch.ones(N) * 2
                    assert x.sum() == 2 * N
                    torch.rand(8)
    except BaseException as error:
        errors.append(error)
        raise

threads = [threading.Thread(target=work, args=(i, i != 2)) for i in range(3)]
own = random.Random(seed)
for thread in threads:
    thread.start()
end = time.time() + seconds
scopes = evictions = replays = 0
while time.time() < end and not errors:
    try:
        with recoup.budget("1500KiB", options=recoup.Options(small_result_bytes=0)) as run:
            for _ in range(own.randrange(1, 60)):
                act(own)
            run.check()
            if own.random() < 0.2:
                raise KeyError("mine")
    except KeyError:
        pass
    scopes, evictions = scopes + 1, evictions + run.stats().evictions
    replays += run.stats().replays
    for _ in range(own.randrange(3)):
        act(own)
stop = True
for thread in threads:
    thread.join()
for k, x in kept:
    assert float(x.sum()) == 4.0 * k * N
counts = scopes, evictions, replays
assert not errors and min(counts) > 5, (counts, errors)
print("done")
"""


@pytest.mark.parametrize("delay", ["", "delay=200"])
@pytest.mark.parametrize(
    ("seed", "seconds"),
    [(1, 4), *(pytest.param(s, 20, marks=pytest.mark.slow) for s in range(2, 12))],
)
def test_monte_carlo(seed: int, seconds: int, delay: str) -> None:
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    environment.pop("RECOUP_TEST_AIDS", None)
    if delay:
        environment["RECOUP_TEST_AIDS"] = delay
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM, str(seed), str(seconds)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0 and done.stdout == "done\n", done.stderr[-3000:]
