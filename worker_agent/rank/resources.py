"""Acquires and releases what one rank needs on its machine, from ports to processes."""

from __future__ import annotations

import dataclasses
import logging
import math
import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from farm.configuration.model_files import file_of
from farm.configuration.scripts import LAUNCHERS, bundle_of, python_of, script_of, variables_of
from farm.configuration.spec import WORKER, NetworkProfile
from farm.errors import EmulationFailed, InvalidSpec, TrainerFailed
from farm.messages.commands import RankAddress, StartRank
from farm.messages.reports import LogPart, PeerRtt, Shaped
from farm.messages.trainer_lines import Assignment, GoLine
from worker_agent.config import AgentConfig
from worker_agent.metrics import METRICS
from worker_agent.metrics.contracts import Watched
from worker_agent.metrics.sampler import Sampler, create_metrics
from worker_agent.network.gang_network import GangNetwork
from worker_agent.network.port_gate import PortGate
from worker_agent.rank.bundles import folder_prefix, remove_folders
from worker_agent.rank.control_run import run_control
from worker_agent.rank.memory_evidence import MemoryEvidence, MemoryMonitor
from worker_agent.rank.ports import PortRange, port_of
from worker_agent.supervisor.events import (
    MeasuringPurpose,
    NetworkMeasured,
    Post,
    RankCleared,
    Sampled,
    TrainerExited,
    TrainerOutput,
)
from worker_agent.trainer_process.environment import may_be_set, trainer_environment
from worker_agent.trainer_process.logs import RankLog
from worker_agent.trainer_process.orphans import kill_leftovers
from worker_agent.trainer_process.process import TrainerProcess
from worker_agent.trainer_process.template import TemplateProcess

logger = logging.getLogger(__name__)

# Of the time left for the peers' barrier, the most that the control run may take. What the peers'
# probes have taken before is gone, so it is of what they left: 0.3 of all where they took 0.3.
_CONTROL_SHARE = 0.3 / 0.7
_TRY_AGAIN_S = 1.0
# Importing, loading data and compiling are not within the job's time limit.
_CPU_GRACE_S = 600.0


class RankResources:
    """Owned by one rank; everything that takes time happens in threads and ends in an event."""

    def __init__(
        self,
        command: StartRank,
        *,
        config: AgentConfig,
        ports: PortRange,
        post: Post,
        template: TemplateProcess | None = None,
    ) -> None:
        """Trainers are forked from `template`, if it serves them; it outlives the rank anyway."""
        self._command = command
        self._config = config
        self._ports = ports
        self._post = post
        self._template = template
        is_served = template is not None and template.serves(command.spec.strategy)
        self._forked_from = template if is_served else None
        self._held: list[socket.socket] = []
        self._trainers: list[TrainerProcess] = []
        self._log = RankLog()
        self._memory = MemoryMonitor()
        self._sampler: Sampler | None = None
        self._network = self._make_network()
        self._script: Path | None = None

    def prepare(self) -> RankAddress:
        """Hold ports, listen for probes, start the trainers; return where peers find them.

        Raises:
            TrainerFailed: no such network, no free ports, or a trainer did not start. `clear` is
                still due.
        """
        try:
            self._config = self._config.within(self._command.spec.interface)
        except InvalidSpec as error:
            raise TrainerFailed(str(error)) from None
        self._script = self._find_script()
        self._network = self._make_network()
        roles = self._command.roles
        probe, *self._held = self._ports.hold(1 + len(roles))
        self._network.listen(probe)
        address = RankAddress(
            rank=self._command.rank,
            host=self._config.address,
            probe_port=port_of(probe),
            trainer_ports=tuple(port_of(held) for held in self._held),
        )
        environment = trainer_environment(
            os.environ,
            state_dir=self._config.settings.state_dir,
            also=self._config.settings.trainer_environment,
        )
        for index, role in enumerate(roles):
            trainer = self._start_trainer(index, role, environment)
            self._trainers.append(trainer)
            self._log.follow(title_of(self._command, index), trainer.log)
        return address

    def measure(self, addresses: tuple[RankAddress, ...], *, timeout_s: float) -> None:
        """Measure the untouched network; ends in a `NetworkMeasured`."""
        work = partial(self._measure, addresses, timeout_s)
        self._in_thread("measure", self._or_failure, MeasuringPurpose.UNTOUCHED, work)

    def shape(
        self,
        profile: NetworkProfile | None,
        *,
        addresses: tuple[RankAddress, ...],
        timeout_s: float,
    ) -> None:
        """Apply the profile and measure what it made; ends in a `NetworkMeasured`."""
        work = partial(self._shape, profile, addresses, timeout_s)
        self._in_thread("shape", self._or_failure, MeasuringPurpose.SHAPED, work)

    def go(self, lines: tuple[GoLine, ...], *, go_s: float) -> None:
        """Free the trainers' ports, let them connect and start the series.

        Raises:
            TrainerFailed: a trainer does not read.
        """
        self._release_ports()
        for trainer, line in zip(self._trainers, lines, strict=True):
            cluster = self._network.reroute(line.cluster)
            trainer.write(dataclasses.replace(line, cluster=cluster))
        pids = tuple(trainer.pid for trainer in self._trainers)
        self._memory.look(pids)
        watched = Watched(
            cpus=self._config.cpus,
            interface=self._config.interface,
            # What a proxy takes of the rank's cores is no foreign load.
            pids=(*pids, *self._network.pids),
            gpus=self._config.gpus or (),
            roles=self._command.roles,
        )
        self._sampler = Sampler(
            create_metrics(METRICS, watched),
            go_s=go_s,
            emit=lambda samples: self._post(Sampled(token=self._command.token, samples=samples)),
        )
        self._sampler.start()

    def memory_evidence(self, process: int, *, children: Sequence[int] = ()) -> MemoryEvidence:
        """Return what is known of this trainer, or its children, and of memory that ran out."""
        return self._memory.evidence(self._trainers[process].pid, children=children)

    def log_tail(self) -> str:
        """Return the last words of all trainers, each under its title."""
        tails = [
            f"[{title_of(self._command, index)}]\n{trainer.log_tail}"
            if len(self._trainers) > 1
            else trainer.log_tail
            for index, trainer in enumerate(self._trainers)
        ]
        return "\n".join(tails)

    def log_parts(self, *, is_last: bool = False) -> Iterator[LogPart]:
        """Yield what the trainers have written since; `is_last`: all that is left of it."""
        return self._log.parts(is_last=is_last)

    def clear(self, *, has_succeeded: bool = False) -> None:
        """Kill every process, undo the profile, free the ports; ends in a `RankCleared`.

        Of a rank that has succeeded the network is looked at before, and timed afterwards.
        """
        self._in_thread("clear", self._clear, has_succeeded)

    def _start_trainer(self, index: int, role: str, environment: dict[str, str]) -> TrainerProcess:
        token, post = self._command.token, self._post
        return TrainerProcess(
            self._config.trainer,
            assignment_of(self._command, index, self._config, script=self._script),
            environment=environment,
            folder=self._config.settings.state_dir,
            user=self._config.trainer_user,
            on_event=lambda event: post(TrainerOutput(token=token, process=index, event=event)),
            on_exit=lambda code: post(TrainerExited(token=token, process=index, return_code=code)),
            template=self._forked_from,
        )

    def _find_script(self) -> Path | None:
        """Return where the rank's script is, if it runs one and may; the trainer looks again.

        Raises:
            TrainerFailed: its bundle is not here any more, or cannot be written for it.
        """
        config, model = self._config, self._command.spec.model
        name, bundle = script_of(model), bundle_of(model)
        for variable in variables_of(model):
            if not may_be_set(variable, also=config.settings.script_variables):
                problem = f"{variable}: this agent lets no sweep set it; see AGENT_SCRIPT_VARIABLES"
                raise TrainerFailed(f"environment: {problem}")
        if name is None or bundle is None:
            return None if name is None else config.scripts.path_of(name)
        if not config.runs_bundles:
            return None
        user = config.trainer_user
        try:
            folder = Path(tempfile.mkdtemp(prefix=str(folder_prefix(config.settings.state_dir))))
            config.bundles.write(bundle, folder, group=None if user is None else user.gid)
            return folder / name
        except (InvalidSpec, OSError) as error:
            raise TrainerFailed(str(error)) from None

    def _make_network(self) -> GangNetwork:
        config = self._config
        gate = None
        if config.open_ports_reason is None:
            gate = PortGate(config.site, trainer_uid=config.trainer_uid)
        return GangNetwork(self._command, config.site, gate=gate)

    def _or_failure(self, purpose: MeasuringPurpose, work: Callable[[], None]) -> None:
        """Do it, or post why not, whatever the reason: the rank ends by it, and is cleared."""
        try:
            work()
        except EmulationFailed as error:
            self._post_measured(purpose, (), failure=str(error))
        except Exception as error:
            logger.exception("network was not measured")
            self._post_measured(purpose, (), failure=f"{type(error).__name__}: {error}")

    def _measure(self, addresses: tuple[RankAddress, ...], timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        rtts = self._network.measure(addresses, timeout_s=timeout_s)
        left_s = deadline - time.monotonic()
        control_s = run_control(self._config.cpus, most_s=_CONTROL_SHARE * left_s)
        self._post_measured(MeasuringPurpose.UNTOUCHED, rtts, control_s=control_s)

    def _shape(
        self, profile: NetworkProfile | None, addresses: tuple[RankAddress, ...], timeout_s: float
    ) -> None:
        profile = profile or NetworkProfile()
        found = self._network.shape(profile, addresses, timeout_s=timeout_s)
        if found is not None:
            self._post_measured(MeasuringPurpose.SHAPED, found.rtts, shaped=found)

    def _post_measured(
        self,
        purpose: MeasuringPurpose,
        rtts: tuple[PeerRtt, ...],
        *,
        shaped: Shaped | None = None,
        failure: str | None = None,
        control_s: float | None = None,
    ) -> None:
        self._post(
            NetworkMeasured(
                token=self._command.token,
                purpose=purpose,
                emulator=self._network.emulator_name,
                rtts=rtts,
                shaped=shaped,
                failure=failure,
                control_s=control_s,
            )
        )

    def _clear(self, has_succeeded: bool) -> None:
        """Let go of everything.

        A step that fails keeps neither the others nor the agent back, but for the one that makes
        sure that no process is left: that is taken again until it succeeds.
        """
        rtts: tuple[PeerRtt, ...] = ()

        def kill_trainers() -> None:
            for trainer in self._trainers:
                self._try(trainer.kill)

        def kill_all() -> None:
            kill_leftovers(self._config, template=self._template, kill_known=kill_trainers)

        def measure_back() -> None:
            nonlocal rtts
            rtts = self._network.measure_back()

        # An emulator may have processes of its own, so before any is killed.
        lost = self._try(self._network.check) if has_succeeded else None
        # The cores are not free as long as a process may be left, even if others have to wait.
        while self._try(kill_all) is not None:
            time.sleep(_TRY_AGAIN_S)
        for trainer in self._trainers:
            self._try(trainer.close)
        if self._sampler is not None:
            self._try(self._sampler.stop)
        self._try(self._memory.close)
        stuck = self._try(self._network.undo)
        if has_succeeded and stuck is None:
            self._try(measure_back)
        self._try(self._network.close)
        # What stays keeps the agent from the next rank, and says nothing against this one.
        self._try(self._network.open_ports)
        self._try(self._release_ports)
        if script_of(self._command.spec.model) is not None:
            folder, user = self._config.settings.state_dir, self._config.trainer_user
            self._try(lambda: remove_folders(folder, user))
        self._post(RankCleared(token=self._command.token, rtts=rtts, failure=lost or stuck))

    def _try(self, step: Callable[[], object]) -> str | None:
        """Take a step; return why it failed, or None."""
        try:
            step()
        except Exception as error:
            logger.exception("a rank did not end as it should")
            return str(error) or type(error).__name__
        return None

    def _release_ports(self) -> None:
        for held in self._held:
            held.close()
        self._held.clear()

    @staticmethod
    def _in_thread(name: str, work: Callable[..., None], *arguments: object) -> None:
        # Nothing that it does may raise: it would end unheard.
        threading.Thread(target=work, args=arguments, name=f"rank-{name}", daemon=True).start()


def title_of(command: StartRank, process: int) -> str:
    """Return what a process is called in the log: by its role, or which of several ranks it is."""
    role = command.roles[process]
    if role != WORKER or command.spec.ranks_per_agent == 1:
        return role
    return f"rank {command.spec.rank_of(command.rank, process)}"


def cpus_of(cpus: tuple[int, ...], process: int, roles: tuple[str, ...]) -> tuple[int, ...]:
    """Return the cores of a process: each rank has its own, if there are enough; a server all."""
    count = roles.count(WORKER)
    if roles[process] != WORKER or count > len(cpus):
        return cpus
    return cpus[process * len(cpus) // count : (process + 1) * len(cpus) // count]


def gpus_of(
    gpus: tuple[str, ...] | None, process: int, command: StartRank
) -> tuple[str, ...] | None:
    """Return the GPUs that a process may see, None: not known; those of ranks are disjoint.

    A rank has as many as its job asks for, or else an equal share, and a server none. A script
    that is started as `torchrun` would sees those of all its agent's ranks, as there, and takes
    its own by LOCAL_RANK.
    """
    roles, each = command.roles, command.spec.gpus_per_rank
    if each == 0:
        return ()
    if gpus is None:
        return None
    if roles[process] != WORKER:
        return ()
    count = roles.count(WORKER)
    each = len(gpus) // count if each is None else each
    if command.spec.strategy == LAUNCHERS["torch"].name:
        return gpus[: each * count]
    place = roles[:process].count(WORKER)
    return gpus[place * each : (place + 1) * each]


def assignment_of(
    command: StartRank, process: int, config: AgentConfig, *, script: Path | None = None
) -> Assignment:
    """Return the first line for a process of a rank, by its index among the roles.

    `script`: where that of the model is.
    """
    role = command.roles[process]
    name = file_of(command.spec.model)
    path = None if name is None else config.models.path_of(name)
    # The agent ends a rank whose time is over; this ends one whose agent cannot.
    cpu_s = math.ceil((command.spec.time_limit_s + _CPU_GRACE_S) * len(config.cpus))
    return Assignment(
        job=command.spec,
        rank=command.spec.rank_of(command.rank, process),
        local_rank=process if role == WORKER else 0,
        role=role,
        cpus=cpus_of(config.cpus, process, command.roles),
        gpus=gpus_of(config.gpus, process, command),
        data_dir=config.settings.data_dir,
        model_file=None if path is None else str(path),
        script=None if script is None else str(script),
        python=config.settings.pythons.get(python_of(command.spec.model) or ""),
        folder_prefix=str(folder_prefix(config.settings.state_dir)),
        agent_uid=os.geteuid(),
        interface=config.interface,
        limits=dataclasses.replace(config.trainer_limits, cpu_s=cpu_s),
    )
