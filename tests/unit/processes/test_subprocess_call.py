import os
import signal
import time
from pathlib import Path

import pytest

from farm.errors import FarmError
from farm.processes.subprocess_call import in_subprocess, run_in_subprocess
from farm.recommend.cache.knowledge import fit_default
from tests.unit.recommend.cache.test_recommend_fits import ASKED, observations


def test_a_model_that_another_process_has_fitted_predicts_the_same() -> None:
    known = observations(6)
    (here,), (elsewhere,) = (
        fit(known).predict([ASKED]) for fit in (fit_default, in_subprocess(fit_default))
    )
    assert elsewhere == here


def test_what_the_fit_raises_there_is_raised_here() -> None:
    with pytest.raises(TypeError, match="tuple"):
        in_subprocess(os._exit)(observations(2))  # type: ignore[arg-type] # it wants a number


def test_a_process_that_ends_without_an_answer_is_told(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FarmError, match="ended with status 1"):
        run_in_subprocess(exec, "raise SystemExit('gone')")
    assert "gone" in capfd.readouterr().err


def test_an_interrupt_of_the_terminal_is_blocked_from_its_first_moment() -> None:
    status = run_in_subprocess(Path.read_text, Path("/proc/self/status"))
    (blocked,) = [line for line in status.splitlines() if line.startswith("SigBlk:")]
    assert int(blocked.split()[1], 16) & 1 << (signal.SIGINT - 1)
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_process_that_hangs_is_ended() -> None:
    with pytest.raises(FarmError, match="no result within 1 s"):
        run_in_subprocess(time.sleep, 60.0, limit_s=1.0)
