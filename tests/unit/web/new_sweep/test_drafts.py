import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from farm.errors import Unreachable
from farm.submission import SubmittedSweep
from web.new_sweep.drafts import Sent, form_key


class Queue:
    """Counts what is enqueued; each sweep has the next id."""

    def __init__(self) -> None:
        self.count = 0

    def enqueue(self) -> SubmittedSweep:
        self.count += 1
        return SubmittedSweep(sweep_id=self.count, job_count=1, max_job_count=1, skipped=())


def test_a_form_is_carried_out_once() -> None:
    sent, queue = Sent(), Queue()
    first, was_sent = sent.once("key", "a sweep", enqueue=queue.enqueue)
    again, was_sent_again = sent.once("key", "a sweep", enqueue=queue.enqueue)
    assert (was_sent, was_sent_again) == (False, True)
    assert first.sweep_id == again.sweep_id == queue.count == 1


def test_another_form_or_another_text_is_another_sweep() -> None:
    sent, queue = Sent(), Queue()
    for key, text in (("a", "x"), ("b", "x"), ("a", "y"), ("", "x"), ("", "x")):
        assert sent.once(key, text, enqueue=queue.enqueue)[1] is False
    assert queue.count == 5


def test_a_form_that_failed_may_be_sent_again() -> None:
    sent, queue = Sent(), Queue()

    def fail() -> SubmittedSweep:
        raise Unreachable("the database is away")

    with pytest.raises(Unreachable):
        sent.once("key", "a sweep", enqueue=fail)
    assert sent.once("key", "a sweep", enqueue=queue.enqueue)[1] is False


def test_two_presses_at_once_enqueue_one_sweep() -> None:
    sent, queue, may_go = Sent(), Queue(), threading.Event()

    def slowly() -> SubmittedSweep:
        assert may_go.wait(timeout=60)
        return queue.enqueue()

    with ThreadPoolExecutor(8) as pool:
        presses = [pool.submit(sent.once, "key", "a sweep", enqueue=slowly) for _ in range(8)]
        may_go.set()
        answers = [press.result(timeout=60) for press in presses]
    assert queue.count == 1
    assert {submitted.sweep_id for submitted, _ in answers} == {1}
    assert sorted(was_sent for _, was_sent in answers) == [False] + [True] * 7


def test_forms_that_were_sent_are_not_remembered_for_ever() -> None:
    sent, queue = Sent(), Queue()
    for number in range(2001):
        sent.once(str(number), "x", enqueue=queue.enqueue)
    assert sent.once("2000", "x", enqueue=queue.enqueue)[1] is True
    assert sent.once("0", "x", enqueue=queue.enqueue)[1] is False


def test_every_form_has_a_key_of_its_own() -> None:
    assert len({form_key() for _ in range(100)}) == 100
