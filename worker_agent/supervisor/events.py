"""Events that other threads send to the supervisor's thread through one queue."""

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass

from farm.messages.reports import PeerRtt, Sample, Shaped
from farm.messages.trainer_lines import TrainerEvent as TrainerEvent


class MeasuringPurpose(enum.Enum):
    """Why the network was measured."""

    UNTOUCHED = "untouched"
    SHAPED = "shaped"


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerClientReady:
    """It has reached the broker and consumes this agent's queue."""

    broker_client: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandArrived:
    """`received_s`: reading of the monotonic clock when it came in."""

    broker_client: int
    line: int
    name: str
    envelope: object
    received_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderDone:
    """The broker client has carried out order `order`; `error` says why it could not."""

    broker_client: int
    order: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerClientGone:
    broker_client: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerOutput:
    token: int
    process: int  # index into the rank's roles
    event: TrainerEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerExited:
    token: int
    process: int
    return_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkMeasured:
    """Either `failure` is set or `rtts` hold. `shaped`: all that was found of a shaped network.

    `control_s`: see worker_agent.rank.control_run; only of an untouched network's measurement.
    """

    token: int
    purpose: MeasuringPurpose
    emulator: str
    rtts: tuple[PeerRtt, ...]
    shaped: Shaped | None = None
    failure: str | None
    control_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampled:
    token: int
    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankCleared:
    """Its last process is gone, its last sample came before this, its ports are free.

    `rtts`: once a profile was undone; empty where they were not measured. `failure`: why the
    network was not what it was taken for, or still is not.
    """

    token: int
    rtts: tuple[PeerRtt, ...] = ()
    failure: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateReady:
    """It has imported everything; trainers are forked from it at once."""

    template: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateGone:
    template: int
    return_code: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UndoFinished:
    """A try to undo what an earlier rank has left applied is over; `error` says why it failed."""

    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRequested:
    signal_name: str


RankEvent = TrainerOutput | TrainerExited | NetworkMeasured | Sampled | RankCleared
BrokerClientEvent = BrokerClientReady | CommandArrived | OrderDone | BrokerClientGone
TemplateEvent = TemplateReady | TemplateGone
AgentEvent = RankEvent | BrokerClientEvent | TemplateEvent | UndoFinished | StopRequested
Post = Callable[[AgentEvent], None]
