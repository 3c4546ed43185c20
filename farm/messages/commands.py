"""Commands from the server to an agent: short, idempotent, fenced by the attempt's token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from farm.configuration.spec import JobSpec, NetworkProfile
from farm.values.ranges import Count, Length, Port, ShortText

_MOST_ROLES = 1 + 4096  # a worker, and the parameter servers of one rank


@dataclass(frozen=True, slots=True, kw_only=True)
class StartRank:
    """`job_id` is for the agent's log alone."""

    token: int
    job_id: int | None = None
    rank: int
    agent_count: int
    roles: tuple[str, ...]  # the role processes of this rank, such as ("worker",)
    spec: JobSpec
    prepare_timeout_s: float

    @property
    def ids(self) -> dict[str, int | None]:
        """What every line of a log names the rank by; the attempt's id is the token."""
        return {"job_id": self.job_id, "attempt_id": self.token, "rank": self.rank}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankAddress:
    rank: Count
    host: ShortText
    probe_port: Port
    trainer_ports: Annotated[
        tuple[Port, ...], Length(_MOST_ROLES)
    ]  # one for each role process, in the order of `roles`


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """All ranks are prepared: measure the untouched round-trip time to each of the others."""

    token: int
    addresses: tuple[RankAddress, ...]
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """All have measured: apply the profile and verify it. None verifies the untouched network."""

    token: int
    profile: NetworkProfile | None
    timeout_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Go:
    """Connect and train. Its receipt is tick 0 of this rank's series."""

    token: int
    cluster: dict[str, tuple[str, ...]]
    timeout_s: float  # until the first step is done
    batch_weights: tuple[float, ...] | None = None  # see `farm.gang.barriers.batch_weights`


@dataclass(frozen=True, slots=True, kw_only=True)
class StopAttempt:
    """End the attempt's rank if it runs, and refuse every token up to this one from now on."""

    token: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirm:
    """Reports of `generation` up to `number` are committed; the spool may forget them."""

    generation: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeatConfirmed:
    boot_id: str
    counter: int
    server_time_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class BundlePiece:
    """The answer to a heartbeat that wants a piece of a script's bundle.

    `sha256` and `piece_count` are the whole bundle's. The content is in base64; it is empty, and
    there are no pieces, where the server has no such bundle.
    """

    bundle: str
    number: int
    sha256: str
    piece_count: int
    content: str


Command = StartRank | Peers | Shape | Go | StopAttempt | Confirm | BeatConfirmed | BundlePiece

COMMANDS: dict[str, type] = {
    "start_rank": StartRank,
    "peers": Peers,
    "shape": Shape,
    "go": Go,
    "stop_attempt": StopAttempt,
    "confirm": Confirm,
    "beat_confirmed": BeatConfirmed,
    "bundle_piece": BundlePiece,
}
COMMAND_NAMES = {kind: name for name, kind in COMMANDS.items()}
