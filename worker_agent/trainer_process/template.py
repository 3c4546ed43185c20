"""Keeps a template process ready, from which trainers are forked, and replaces it when it ends.

A trainer that is forked from it starts in milliseconds; importing its framework would take seconds.
`farm.trainers.processes.template` is the code of the template.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from farm.configuration.catalogue import PYTORCH_NAMES
from farm.configuration.scripts import LAUNCHED
from worker_agent.config import AgentConfig
from worker_agent.supervisor.events import Post, TemplateEvent, TemplateGone, TemplateReady
from worker_agent.trainer_process.child import Child
from worker_agent.trainer_process.environment import trainer_environment
from worker_agent.trainer_process.user import TrainerUser, start_as

logger = logging.getLogger(__name__)

_READY, _FORK = b"ready", b"fork"
# A fork takes some 20 ms of a core. A template that has not answered for this long hangs, and is
# killed; then the pipe for the answer ends at once.
ANSWER_LIMIT_S = 10.0
_END_LIMIT_S = 5.0
_LOG_TAIL_BYTES = 2000
# Twelve seconds are usual where four import at once on two cores, a minute from a cold, slow disk.
IMPORT_LIMIT_S = 90.0
FIRST_TEMPLATE_PAUSE_S = 1.0
LONGEST_TEMPLATE_PAUSE_S = 600.0
PROVEN_AFTER_S = 600.0
# Adding up its pages takes the kernel some milliseconds.
MEASURE_EVERY_S = 60.0


class TemplateProcess:
    """One life of the template. What becomes of it arrives as events with its number.

    Start it from the main thread: the kernel ends it when the thread that started it ends. The
    agent must be the reaper of its descendants.
    """

    def __init__(
        self,
        number: int,
        command: Sequence[str],
        *,
        environment: dict[str, str],
        folder: Path,
        post: Post,
        user: TrainerUser | None = None,
    ) -> None:
        """Start it; what it prints goes to `template.log` in `folder`.

        Raises:
            OSError, RuntimeError: it, or the thread that waits for it, was not started.
        """
        self.number = number
        self.environment = environment
        self.started_s = time.monotonic()
        self._post = post
        self._log = folder / "template.log"
        self._is_settled = threading.Event()  # ready, or gone
        self.is_ready = False
        self._control, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            with its_end, self._log.open("wb") as log:
                process = start_as(
                    user,
                    command,
                    stdin=its_end.fileno(),
                    stdout=log,
                    stderr=log,
                    environment=environment,
                    folder=folder,
                )
        except OSError:
            self._control.close()
            raise
        self._child = Child.started(process)
        try:
            threading.Thread(target=self._read, name="template", daemon=True).start()
        except RuntimeError:
            self._child.kill_group()
            self._child.wait()
            self._control.close()
            raise

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def is_alive(self) -> bool:
        return self._child.is_alive

    @property
    def log_tail(self) -> str:
        """The end of what it printed."""
        try:
            return self._log.read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace").strip()
        except OSError as error:
            return str(error)

    def serves(self, strategy: str) -> bool:
        """Whether it has imported what trainers of this strategy need: TensorFlow, not PyTorch."""
        return not (strategy.startswith(PYTORCH_NAMES) or strategy in LAUNCHED)

    def fork(self, descriptors: Sequence[int]) -> int | None:
        """Have a trainer forked with these as its standard descriptors; return its pid.

        It is this process's child, and must be waited for. Waits while the template is still
        importing. None: there is no such trainer and there will be none; the caller starts it
        without the template.
        """
        answer, its_end = os.pipe()
        try:
            try:
                socket.send_fds(
                    self._control, [_FORK], [*descriptors, its_end], socket.MSG_DONTWAIT
                )
            except OSError as error:
                logger.warning("template cannot be asked: %s", error)
                self.kill()
            finally:
                os.close(its_end)
            self._is_settled.wait()
            if not _is_readable(answer, ANSWER_LIMIT_S):
                logger.warning("template did not answer for %g s", ANSWER_LIMIT_S)
                self.kill()
                if not _is_readable(answer, _END_LIMIT_S):
                    logger.error("killed template does not end", extra={"pid": self.pid})
                    return None
            return int(os.read(answer, 32) or b"0") or None
        finally:
            os.close(answer)

    def kill(self) -> None:
        """End it with all forks that have not become trainers; its `TemplateGone` follows."""
        self._child.kill_group()

    def resident_bytes(self) -> int | None:
        """Return its proportional set size: what it shares counts by parts. None if not told."""
        try:
            lines = Path(f"/proc/{self.pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            return None
        sizes = [line.split() for line in lines]
        return next((int(words[1]) * 1024 for words in sizes if words[0] == "Pss:"), None)

    def _read(self) -> None:
        """Wait for its word that it is ready, and then for its end."""
        try:
            if self._control.recv(len(_READY)) == _READY:
                self.is_ready = True
                self._is_settled.set()
                self._post(TemplateReady(template=self.number))
        except OSError as error:
            logger.debug("template was cut off: %s", error)
        return_code = self._child.wait()
        self._control.close()
        self._is_settled.set()
        self._post(TemplateGone(template=self.number, return_code=return_code))


def _is_readable(descriptor: int, limit_s: float) -> bool:
    """Wait until there is something to read, if only the end."""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(limit_s * 1000))


class TemplateSupervisor:
    """Keeps one template ready; starts and measures it only while nothing else is measured.

    Used in the supervisor's thread only. Instants are readings of the monotonic clock.
    """

    def __init__(self, config: AgentConfig, post: Post) -> None:
        self._config = config
        self._post = post
        self._template: TemplateProcess | None = None
        self._number = 0
        self._start_at = 0.0
        self._pause_s = FIRST_TEMPLATE_PAUSE_S
        self._measure_at = 0.0
        self.template_bytes: int | None = None

    @property
    def pids(self) -> frozenset[int]:
        """The template's own process, which outlives the ranks."""
        return frozenset({self._template.pid}) if self._template is not None else frozenset()

    def template(self) -> TemplateProcess | None:
        """Return the process from which ranks that it `serves` are forked, once it has started.

        It may still be importing. It has the environment that the agent had when it started: once
        that has changed nothing is forked from it, and it is killed when the next rank ends.
        """
        template = self._template
        if template is None or template.environment != self._environment():
            return None
        return template

    def tick(self, *, now: float, is_idle: bool) -> None:
        """Start or measure it if `is_idle`, that is, if no rank is served; kill it if it hangs."""
        template = self._template
        if template is None:
            if is_idle and self._config.template is not None and now >= self._start_at:
                self._start(self._config.template, now=now)
        elif not template.is_ready:
            if now - template.started_s > IMPORT_LIMIT_S:
                logger.warning("template was not ready within %g s", IMPORT_LIMIT_S)
                template.kill()
        elif is_idle and now >= self._measure_at:
            self._measure_at = now + MEASURE_EVERY_S
            self.template_bytes = template.resident_bytes()

    def handle(self, event: TemplateEvent, *, now: float) -> None:
        """Take an event of the present template, or of one before it."""
        template = self._template
        if template is None or event.template != template.number:
            return
        if isinstance(event, TemplateReady):
            took_s = now - template.started_s
            logger.info("template is ready", extra={"pid": template.pid, "took_s": took_s})
            self._measure_at = now
            return
        if now - template.started_s > PROVEN_AFTER_S:
            self._pause_s = FIRST_TEMPLATE_PAUSE_S
        self._template = self.template_bytes = None
        reason = f"it ended ({event.return_code}); {template.log_tail}"
        self._lose(reason, now=now)

    def stop(self) -> None:
        """Kill the template and start no other."""
        self._start_at = float("inf")
        if self._template is not None:
            self._template.kill()

    def _start(self, command: tuple[str, ...], *, now: float) -> None:
        self._number += 1
        try:
            self._template = TemplateProcess(
                self._number,
                command,
                environment=self._environment(),
                folder=self._config.settings.state_dir,
                post=self._post,
                user=self._config.trainer_user,
            )
        except (OSError, RuntimeError) as error:  # the latter: no new thread
            self._lose(str(error), now=now)

    def _lose(self, reason: str, *, now: float) -> None:
        if self._start_at != float("inf"):
            self._start_at = now + self._pause_s
            logger.warning(
                "no template, trainers start cold; the next try is in %g s at the earliest: %s",
                self._pause_s,
                reason,
            )
        self._pause_s = min(2 * self._pause_s, LONGEST_TEMPLATE_PAUSE_S)

    def _environment(self) -> dict[str, str]:
        return trainer_environment(
            os.environ,
            state_dir=self._config.settings.state_dir,
            also=self._config.settings.trainer_environment,
        )
