"""PyTorch scripts that know nothing of the farm: which of their steps are marks."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from pathlib import Path

import pytest

from tests.integration.benchfarm.script_run import run_script, started, write_script

pytestmark = pytest.mark.torch

# Of one process, since the import takes longest. Each phase says when it ended.
PHASES = """
import contextlib, json, time, torch

ended = {}

@contextlib.contextmanager
def phase(name):
    yield
    ended[name] = time.monotonic()

def model():
    return torch.nn.Linear(8, 2)

def backward(model, inputs=None):
    model(torch.randn(4, 8) if inputs is None else inputs).sum().backward()

def main():
    with phase("SGD"):
        net = model()
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        for _ in range(5):
            backward(net); optimizer.step(); optimizer.zero_grad()

    with phase("accumulated, with a scheduler"):
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
        for batch in range(12):
            backward(net)
            if batch % 3 == 2:
                optimizer.step(); scheduler.step(); optimizer.zero_grad()

    with phase("two optimizers"):
        other = model()
        second = torch.optim.Adam(other.parameters())
        for _ in range(6):
            for net_, optimizer_ in ((net, optimizer), (other, second)):
                backward(net_); optimizer_.step(); optimizer_.zero_grad()

    with phase("made anew"):
        optimizer = torch.optim.AdamW(net.parameters())
        for _ in range(7):
            backward(net); optimizer.step(); optimizer.zero_grad()

    with phase("workers"):
        dataset = torch.utils.data.TensorDataset(torch.randn(16, 8))
        for method in ("fork", "spawn"):
            loader = torch.utils.data.DataLoader(
                dataset, batch_size=4, num_workers=2, multiprocessing_context=method
            )
            for (inputs,) in loader:
                backward(net, inputs); optimizer.step(); optimizer.zero_grad()

    import benchfarm
    with phase("told by the script"):
        for _ in range(3):
            backward(net); optimizer.step(); optimizer.zero_grad()
            benchfarm.step(loss=net(torch.ones(8)).sum())
        for _ in range(3):
            optimizer.step()
    print(json.dumps(ended))

if __name__ == "__main__":
    main()
"""
DISTRIBUTED = """
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

def main():
    dist.init_process_group("gloo")
    net = DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(net.parameters())
    dataset = torch.utils.data.TensorDataset(torch.randn(4000, 8))
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, num_workers=1)
    for epoch in range(2):
        for (inputs,) in loader:
            net(inputs).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""


def test_each_step_of_an_unchanged_script_is_one_mark(tmp_path: Path) -> None:
    ended = run_script(write_script(tmp_path, PHASES))
    assert ended.status == 0, ended.error
    counts: dict[str, int] = {}
    begun_s = 0.0
    for name, ended_s in json.loads(ended.output).items():
        counts[name] = sum(begun_s < mark["monotonic_s"] <= ended_s for mark in ended.marks)
        begun_s = ended_s

    assert counts == {
        "SGD": 5,
        "accumulated, with a scheduler": 4,
        "two optimizers": 6,
        "made anew": 6,  # seven, without its first
        "workers": 8,
        "told by the script": 3,  # the first is the hook's, the others are its own
    }
    assert ended.numbers() == list(range(1, 33))
    assert [mark["loss"] is None for mark in ended.marks] == [*[True] * 30, *[False] * 2]


def test_ranks_end_at_the_same_step(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    script = write_script(tmp_path, DISTRIBUTED)
    rendezvous = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": "2"}
    with contextlib.ExitStack() as both:
        ranks = []
        for rank in range(2):
            folder = tmp_path / str(rank)
            folder.mkdir()
            environment = {**os.environ, **rendezvous, "RANK": str(rank)}
            ranks.append(
                both.enter_context(
                    started(script, last_mark=7, environment=environment, output=folder)
                )
            )
        ended = [running.end() for running in ranks]

    assert [one.status for one in ended] == [0, 0], [one.error for one in ended]
    assert [one.numbers() for one in ended] == [list(range(1, 8))] * 2


OWN_RANKS = """
import sys, torch
def train(rank):
    print("trains")
if __name__ == "__main__":
    torch.multiprocessing.spawn(train, nprocs=2)
"""


@pytest.mark.parametrize("rank", ["0", pytest.param(None, marks=pytest.mark.slow)])
def test_a_rank_that_spawns_ranks_of_its_own_says_so_at_once(
    rank: str | None, tmp_path: Path
) -> None:
    environment = {} if rank is None else {"RANK": rank}
    ended = run_script(write_script(tmp_path, OWN_RANKS), environment=environment)

    assert ended.status == (0 if rank is None else 1)
    assert ended.output.count("trains") == (2 if rank is None else 0)
    assert ("got 2 processes of its own" in ended.error) == (rank is not None)
