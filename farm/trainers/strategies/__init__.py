"""The strategies that a sweep may name. To add one: its file, and its line in STRATEGIES."""

from farm.trainers.contracts import Strategy
from farm.trainers.strategies.central_reduce import CentralReduce
from farm.trainers.strategies.central_storage import CentralStorage
from farm.trainers.strategies.gossip import Gossip
from farm.trainers.strategies.local_sgd import LocalSgd
from farm.trainers.strategies.mirrored import Mirrored
from farm.trainers.strategies.mwms_auto import MwmsAuto
from farm.trainers.strategies.mwms_ring import MwmsRing
from farm.trainers.strategies.ps_async import PsAsync
from farm.trainers.strategies.ps_sync import PsSync
from farm.trainers.strategies.replicated import Replicated
from farm.trainers.strategies.single import Single
from farm.trainers.strategies.torch.ddp import TorchDdp
from farm.trainers.strategies.torch.fsdp import TorchFsdp
from farm.trainers.strategies.torch.local_sgd import TorchDiloco, TorchLocalSgd
from farm.trainers.strategies.torch.pipeline import TorchPipeline

STRATEGIES: tuple[Strategy, ...] = (
    Single(),
    Mirrored(),
    CentralStorage(),
    MwmsRing(),
    MwmsAuto(),
    PsAsync(),
    PsSync(),
    Replicated(),
    CentralReduce(),
    LocalSgd(),
    Gossip(),
    TorchDdp(),
    TorchFsdp(),
    TorchPipeline(),
    TorchLocalSgd(),
    TorchDiloco(),
)
