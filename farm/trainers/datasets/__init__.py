"""The data sets that a sweep may name. To add one: its file, and its line in DATASETS."""

from farm.trainers.contracts import Dataset
from farm.trainers.datasets.cifar10 import Cifar10
from farm.trainers.datasets.digits import Digits
from farm.trainers.datasets.mnist import Mnist
from farm.trainers.datasets.synthetic import (
    SYNTHETIC_CIFAR10,
    SYNTHETIC_DIGITS,
    SYNTHETIC_IMAGENET,
    SYNTHETIC_IMAGENET64,
    SYNTHETIC_MNIST,
)
from farm.trainers.datasets.synthetic_tokens import SYNTHETIC_TOKENS

DATASETS: tuple[Dataset, ...] = (
    Digits(),
    Mnist(),
    Cifar10(),
    SYNTHETIC_DIGITS,
    SYNTHETIC_MNIST,
    SYNTHETIC_CIFAR10,
    SYNTHETIC_IMAGENET64,
    SYNTHETIC_IMAGENET,
    SYNTHETIC_TOKENS,
)
