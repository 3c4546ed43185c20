from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from farm.processes.subprocess_call import spared_children

_SHOW = "print(next(line.split()[1] for line in open('/proc/self/status') if 'SigBlk' in line))"


def test_a_child_has_the_interrupt_blocked_from_its_first_moment() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    with spared_children():
        child = subprocess.run([sys.executable, "-c", _SHOW], capture_output=True, check=True)
    assert int(child.stdout, 16) & 1 << (signal.SIGINT - 1)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before


def _interrupt_once(begun: threading.Event) -> None:
    begun.wait(timeout=60)
    signal.pthread_kill(threading.get_ident(), signal.SIGINT)


def test_an_interrupt_comes_after_the_block_whichever_thread_gets_it() -> None:
    done: list[str] = []
    begun = threading.Event()
    # The test runner may have another handler, or have blocked the signal.
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    before = signal.getsignal(signal.SIGINT)
    # Started before the block, or it would inherit what is blocked.
    other = threading.Thread(target=_interrupt_once, args=(begun,))
    other.start()

    def start_processes() -> None:
        with spared_children():
            begun.set()
            other.join()
            done.append("the block")

    try:
        with pytest.raises(KeyboardInterrupt):
            start_processes()
        assert done == ["the block"]
        assert signal.getsignal(signal.SIGINT) is before
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, found)
