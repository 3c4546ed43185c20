"""Cache of step-time models, valid while the measurements that they were fitted to stay the same.

A command waits for its fit, and finds it on disk the next time. A server must not wait. A
background thread fits again when measurements have arrived; until it is done, the last model
answers and states its age. The thread pauses between the fits of one subject, so a farm that
measures all day does not also fit all day.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from pathlib import Path

from farm.recommend.cache.fit_files import FitFiles, digest_of
from farm.recommend.configuration import Observation
from farm.recommend.contracts import StepTimeModel

logger = logging.getLogger(__name__)

Fit = Callable[[Sequence[Observation]], StepTimeModel]

MAX_MODELS = 32
PREPARING = "predictions are being prepared: ask again"
_FIRST_WAIT_S = 30.0  # of a request, for the first model of its subject
_REST_RATIO = 3.0  # between two fits of one subject, in times of the last one


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """`model` None goes with the reason. `is_current`: it follows from all that was measured.

    `is_awaited`: a thread is fitting, so a later request will get more.
    """

    model: StepTimeModel | None
    measurement_count: int = 0
    is_current: bool = True
    lacking_because: str | None = None
    is_awaited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Due:
    """A fit that is to be made."""

    digest: str
    observations: tuple[Observation, ...]


class Fits:
    """Cache of the fitted models of a process. `in_background` is for servers. Threads share it."""

    def __init__(
        self, fit: Fit, *, folder: Path | None = None, in_background: bool = False
    ) -> None:
        self._fit = fit
        self._files = None if folder is None else FitFiles(folder)
        self._in_background = in_background
        self._changed = threading.Condition()
        self._kept: OrderedDict[str, Fitted] = OrderedDict()  # by digest
        self._last: dict[Hashable, str] = {}  # the digest of a subject's last model
        self._due: OrderedDict[Hashable, _Due] = OrderedDict()
        self._rest_until: dict[Hashable, float] = {}
        self._is_fitting = False

    def model_of(
        self,
        subject: Hashable,
        observations: Sequence[Observation],
        *,
        digest: str | None = None,
        may_wait: bool = True,
    ) -> Fitted:
        """Return the model of a subject, such as an origin's measurements on one hardware.

        In the background the first model of a subject is waited for, unless `may_wait` is False;
        afterwards the last one is returned at once. `digest`: of the observations, if who asks has
        it already.
        """
        digest = digest or digest_of(observations)
        with self._changed:
            known = self._known(digest)
        known = known or self._load(digest, len(observations))
        if known is None and not self._in_background:
            known = self._make(digest, observations)
        if known is not None:
            with self._changed:
                self._keep(subject, digest, known)
            return known
        return self._later(subject, _Due(digest=digest, observations=tuple(observations)), may_wait)

    def _later(self, subject: Hashable, due: _Due, may_wait: bool) -> Fitted:
        with self._changed:
            made = self._known(due.digest)
            if made is not None:
                return made  # since it was looked for
            self._due[subject] = due
            self._changed.notify_all()
            if not self._is_fitting:
                self._is_fitting = True
                threading.Thread(target=self._work, name="fits", daemon=True).start()
            last = self._known(self._last.get(subject, ""))
            if last is None and may_wait:
                self._changed.wait_for(lambda: due.digest in self._kept, timeout=_FIRST_WAIT_S)
                last = self._known(due.digest)
                if last is not None:
                    return last
        if last is None or last.model is None:
            return Fitted(model=None, lacking_because=PREPARING, is_awaited=True)
        return Fitted(
            model=last.model,
            measurement_count=last.measurement_count,
            is_current=False,
            is_awaited=True,
        )

    def _work(self) -> None:
        """Fit what is due until nothing is; runs in a thread of its own."""
        while True:
            with self._changed:
                if not self._due:
                    self._is_fitting = False
                    return
                now = time.monotonic()
                subject = min(self._due, key=lambda s: self._rest_until.get(s, 0.0))
                rest_s = self._rest_until.get(subject, 0.0) - now
                if rest_s > 0:
                    # A subject that was never fitted may come meanwhile, and needs no rest.
                    self._changed.wait(timeout=rest_s)
                    continue
                due = self._due.pop(subject)
                if due.digest in self._kept:
                    continue  # asked for again while it was made
            made = self._make(due.digest, due.observations)
            with self._changed:
                took_s = time.monotonic() - now
                self._rest_until[subject] = now + took_s * (1 + _REST_RATIO)
                self._keep(subject, due.digest, made)
                self._changed.notify_all()

    def _make(self, digest: str, observations: Sequence[Observation]) -> Fitted:
        """Fit, now and here. What cannot be fitted is not tried again with the same values."""
        try:
            model = self._fit(observations)
        except ModuleNotFoundError as error:
            why = f"predictions need {error.name}: pip install 'benchfarm[ml]'"
            return Fitted(model=None, lacking_because=why)
        except (ArithmeticError, ValueError) as error:
            # Of numbers that no computation is made for, such as a bandwidth of 1e-300.
            logger.warning("a fit failed: %s", error)
            return Fitted(model=None, lacking_because=f"predictions failed ({error})")
        except Exception:
            if not self._in_background:
                raise
            logger.exception("a fit failed", extra={"observation_count": len(observations)})
            return Fitted(model=None, lacking_because="the fit failed: see the server's log")
        if self._files is not None:
            self._files.save(digest, model)
        return Fitted(model=model, measurement_count=len(observations))

    def _load(self, digest: str, count: int) -> Fitted | None:
        model = None if self._files is None else self._files.load(digest)
        return None if model is None else Fitted(model=model, measurement_count=count)

    def _known(self, digest: str) -> Fitted | None:
        if digest in self._kept:
            self._kept.move_to_end(digest)
        return self._kept.get(digest)

    def _keep(self, subject: Hashable, digest: str, fitted: Fitted) -> None:
        self._kept[digest] = fitted
        self._kept.move_to_end(digest)
        if fitted.model is not None:
            self._last[subject] = digest
        while len(self._kept) > MAX_MODELS:
            gone, _ = self._kept.popitem(last=False)
            self._last = {s: d for s, d in self._last.items() if d != gone}
