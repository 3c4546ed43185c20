"""The models that a sweep may name. To add one: its file, and its line in MODELS."""

from farm.trainers.models.architecture import Architecture
from farm.trainers.models.bert import BERT_BASE
from farm.trainers.models.gpt2 import GPT2_SMALL, GPT2_TINY
from farm.trainers.models.inception_v1 import INCEPTION_V1
from farm.trainers.models.lstm import LSTM
from farm.trainers.models.mlp import MLP
from farm.trainers.models.resnet import RESNET18, RESNET50
from farm.trainers.models.shallow_cnn import SHALLOW_CNN
from farm.trainers.models.small_cnn import SMALL_CNN
from farm.trainers.models.vgg16 import VGG16
from farm.trainers.models.vit import VIT_B16, VIT_TINY

MODELS: tuple[Architecture, ...] = (
    SMALL_CNN,
    SHALLOW_CNN,
    MLP,
    RESNET18,
    RESNET50,
    INCEPTION_V1,
    VGG16,
    VIT_TINY,
    VIT_B16,
    GPT2_TINY,
    GPT2_SMALL,
    BERT_BASE,
    LSTM,
)
