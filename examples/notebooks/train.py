"""Trains a small network on made-up data: one rank, or several with DistributedDataParallel."""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import benchfarm

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--batch-size", type=int, default=256, help="of each rank")
parser.add_argument("--steps", type=int, default=200)
given = parser.parse_args()

dist.init_process_group("gloo")
torch.manual_seed(0)
network = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 10))
model = DistributedDataParallel(network)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
inputs = torch.randn(given.batch_size, 256)
labels = torch.randint(10, (given.batch_size,))
for _ in range(given.steps):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), labels)
    loss.backward()
    optimizer.step()
    benchfarm.step(loss=loss.item())
dist.destroy_process_group()
