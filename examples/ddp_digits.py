# By hand: torchrun --nproc-per-node 2 examples/ddp_digits.py --batch-size 32
"""Classify scikit-learn's digits with plain DistributedDataParallel."""

import argparse

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def digits() -> TensorDataset:
    """Return 1797 images of 8 x 8 pixels from 0 to 1, with their digits."""
    images, labels = load_digits(return_X_y=True)
    return TensorDataset(torch.tensor(images / 16, dtype=torch.float32), torch.tensor(labels))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch-size", type=int, default=32, help="of each rank")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--workers", type=int, default=0, help="processes that load the data")
    given = parser.parse_args()

    dist.init_process_group("gloo")
    torch.manual_seed(0)
    data = digits()
    sampler: DistributedSampler[tuple[torch.Tensor, ...]] = DistributedSampler(data)
    loader = DataLoader(
        data,
        batch_size=given.batch_size,
        sampler=sampler,
        num_workers=given.workers,
        drop_last=True,
    )
    network = nn.Sequential(nn.Linear(64, given.hidden), nn.ReLU(), nn.Linear(given.hidden, 10))
    model = DistributedDataParallel(network)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for epoch in range(given.epochs):
        sampler.set_epoch(epoch)
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: loss {loss.item():.3f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
