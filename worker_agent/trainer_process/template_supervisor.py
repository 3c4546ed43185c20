"""Keeps one template process ready, from which trainers are forked.

It starts and measures the template only while nothing else is measured.
"""

from __future__ import annotations

import logging
import os

from worker_agent.config import AgentConfig
from worker_agent.supervisor.events import Post, TemplateEvent, TemplateReady
from worker_agent.trainer_process.environment import trainer_environment
from worker_agent.trainer_process.template import TemplateProcess

logger = logging.getLogger(__name__)

# Twelve seconds are usual where four import at once on two cores, a minute from a cold, slow disk.
IMPORT_LIMIT_S = 90.0
FIRST_PAUSE_S = 1.0
LAST_PAUSE_S = 600.0
PROVEN_AFTER_S = 600.0
# Adding up its pages takes the kernel some milliseconds.
MEASURE_EVERY_S = 60.0


class TemplateSupervisor:
    """Used in the supervisor's thread only. Instants are readings of the monotonic clock."""

    def __init__(self, config: AgentConfig, post: Post) -> None:
        self._config = config
        self._post = post
        self._template: TemplateProcess | None = None
        self._number = 0
        self._start_at = 0.0
        self._pause_s = FIRST_PAUSE_S
        self._measure_at = 0.0
        self.template_bytes: int | None = None

    @property
    def pids(self) -> frozenset[int]:
        """The template's own process, which outlives the ranks."""
        return frozenset({self._template.pid}) if self._template is not None else frozenset()

    def template(self) -> TemplateProcess | None:
        """Return what ranks that it `serves` may be forked from, ready or still importing.

        A template is as its agent's environment was when it started; from another one nothing is
        forked, and it is killed when the next rank ends.
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
            self._pause_s = FIRST_PAUSE_S
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
        self._pause_s = min(2 * self._pause_s, LAST_PAUSE_S)

    def _environment(self) -> dict[str, str]:
        return trainer_environment(
            os.environ,
            state_dir=self._config.settings.state_dir,
            also=self._config.settings.trainer_environment,
        )
