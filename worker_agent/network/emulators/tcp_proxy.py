"""Emulates delay without privileges: a proxy process delays the bytes that pass through it.

The proxy terminates TCP on both sides. It therefore cannot lose packets, and TCP does not notice
the delay: neither the window nor slow start limits the sender. Measurements through the proxy carry
its name.
"""

from __future__ import annotations

import dataclasses
import select
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from farm.configuration.spec import LEAST_BANDWIDTH_BYTES_PER_S, TCP_PROXY, NetworkProfile
from farm.errors import EmulationFailed, InvalidSpec
from farm.messages.commands import RankAddress
from farm.values.codec import canonical_json, from_text
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.proxy import LISTEN_HOST, ProxiedPeer, ProxyOrder
from worker_agent.trainer_process.environment import AGENT_MARK, plain_environment

_START_LIMIT_S = 15.0
_END_LIMIT_S = 5.0


class TcpProxy:
    name = TCP_PROXY
    capabilities: tuple[str, ...] = (name,)
    outlives_agent = False  # it ends with the pipe from its agent

    def __init__(self, site: Site) -> None:
        self._site = site
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pids(self) -> tuple[int, ...]:
        return () if self._process is None else (self._process.pid,)

    def probe(self) -> str | None:
        return None

    def serves(self, profile: NetworkProfile) -> bool:
        """Whether a proxy can emulate it: a proxy cannot lose packets."""
        bandwidth = profile.bandwidth_bytes_per_s
        return (
            not profile.beyond(self.name)
            and profile.jitter_s <= profile.one_way_delay_s
            and (bandwidth is None or bandwidth >= LEAST_BANDWIDTH_BYTES_PER_S)
        )

    def apply(
        self, profile: NetworkProfile, peers: tuple[RankAddress, ...]
    ) -> tuple[RankAddress, ...]:
        """Start the proxy; return its address and ports in the place of each peer's."""
        order = ProxyOrder(
            profile=profile,
            cpus=self._site.cpus,
            peers=tuple(
                ProxiedPeer(rank=p.rank, host=p.host, ports=(p.probe_port, *p.trainer_ports))
                for p in peers
            ),
        )
        try:
            ports = self._start(order)
        except EmulationFailed:
            self.clear()
            raise
        return tuple(
            dataclasses.replace(
                peer, host=LISTEN_HOST, probe_port=probe_port, trainer_ports=tuple(trainer_ports)
            )
            for peer, (probe_port, *trainer_ports) in zip(peers, ports, strict=True)
        )

    def check(self) -> None:
        """Check that the proxy is alive; it listens until it ends. Raises EmulationFailed."""
        process = self._process
        if process is None or process.poll() is None:
            return
        last_line = self._last_words()
        raise EmulationFailed(
            f"tcp_proxy has ended with status {process.returncode}"
            + (f": {last_line}" if last_line else "")
        )

    def clear(self) -> None:
        """End the proxy, and with it every connection through it."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait(timeout=_END_LIMIT_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    def _start(self, order: ProxyOrder) -> Iterable[tuple[int, ...]]:
        try:
            self._process = process = self._spawn()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(canonical_json(order).encode() + b"\n")
            process.stdin.flush()
            readable, _, _ = select.select([process.stdout], [], [], _START_LIMIT_S)
            answer = process.stdout.readline() if readable else b""
            return from_text(tuple[tuple[int, ...], ...], answer)
        except (OSError, InvalidSpec) as error:
            if self._process is None:
                raise EmulationFailed(f"tcp_proxy did not start: {error}") from error
            reason = self._last_words() or f"no answer within {_START_LIMIT_S:g} s"
            raise EmulationFailed(f"tcp_proxy did not start: {reason}") from error

    @property
    def _log(self) -> Path:
        return Path(self._site.state_dir) / "proxy.log"

    def _last_words(self) -> str:
        try:
            lines = self._log.read_text(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return lines[-1] if lines else ""

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._log.open("wb") as errors:
            return subprocess.Popen(
                (sys.executable, "-P", "-m", "worker_agent.network.proxy"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                # Marked like a trainer, it is found and killed even if the agent loses sight of it.
                env={**plain_environment(), AGENT_MARK: self._site.state_dir},
                cwd=self._site.state_dir,
                start_new_session=True,
            )
