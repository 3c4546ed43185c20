"""Any interleaving of the protocol's messages, and of what goes wrong, keeps what is promised.

`MODEL_EXAMPLES` asks for more stories than the few hundred of an ordinary run.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from farm.store.engine import make_engine
from farm.store.schema import upgrade
from tests.promises.invariants import nothing_is_lost
from tests.protocol.farm import ProtocolFarm
from tests.protocol.ledger_server import LedgerServer
from tests.protocol.paired_server import PairedServer
from tests.protocol.planted import (
    agent_says_too_early_that_it_is_clean,
    agents_take_any_token,
    beats_without_echo_are_fresh,
    collector_takes_any_token,
    lease_is_never_freed,
    server_takes_who_serves_for_clean,
    spool_forgets_on_publish,
    stale_beats_are_fresh,
)
from tests.protocol.server import Server
from tests.protocol.store_server import StoreServer
from tests.protocol.story import ProtocolStory, temporary_folder

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "250"))
STEPS = 20
pytestmark = pytest.mark.timeout(300 + EXAMPLES)


@pytest.fixture(scope="module")
def engine() -> Iterator[sa.Engine]:
    with temporary_folder() as folder:
        engine = make_engine(f"sqlite:///{folder}/farm.db")
        upgrade(engine)
        yield engine
        engine.dispose()


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """Warnings are the rule here, and to write them takes longer than what they tell of."""
    loggers = [logging.getLogger(name) for name in ("farm", "worker_agent")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def run(story: type[ProtocolStory], *, examples: int, **others: Any) -> None:
    run_state_machine_as_test(
        story,
        settings=settings(
            max_examples=examples,
            stateful_step_count=STEPS,
            suppress_health_check=list(HealthCheck),
            **others,
        ),
    )


def test_every_interleaving_keeps_the_promises() -> None:
    run(ProtocolStory, examples=EXAMPLES)


def test_a_rank_served_again_on_a_new_disk_may_say_the_same_again() -> None:
    """The first life's report is under way while the next one is given the same command again."""
    with temporary_folder() as home:
        farm = ProtocolFarm(LedgerServer(), home, agent_count=1)
        [agent] = farm.agents
        with farm.running():
            for _ in range(8):
                farm.go_on()
            farm.submit(agent_count=1)
            farm.round()
            given_out = [name for name, _ in farm.broker.given_out[agent.agent_id]]
            for life in range(2):
                if life == 1:
                    agent.wipe()
                    agent.start()
                    farm.clock.now_s += 1.0
                    agent.turn()
                    farm.broker.repeat_command(agent.agent_id, given_out.index("start_rank"))
                while agent.deliver(0):
                    pass
                agent.work()
                farm.clock.now_s += 1.0
                agent.turn()
            assert farm.collect_reports(0)
            farm.server.cancel(farm.job_ids[0], now=farm.now)
            farm.round()
            assert farm.collect_reports(0)
            stored = farm.server.stored()
            assert len(stored) == 2
            assert stored[0] == stored[1]
            known = {"waiting": farm.waiting(), "stored": stored}
            assert nothing_is_lost(farm.written(), **known, lost=farm.lost()) == []


def test_the_real_server_says_what_the_ledger_says(engine: sa.Engine) -> None:
    class PairedStory(ProtocolStory):
        @staticmethod
        def new_server() -> Server:
            return PairedServer(StoreServer(engine), LedgerServer())

    run(PairedStory, examples=max(1, EXAMPLES // 12))


@pytest.mark.timeout(900)  # for the one that hides
@pytest.mark.slow  # the bugs are planted in the model; it changes seldom
@pytest.mark.parametrize(
    ("planted", "found"),
    [
        # Noticed by the rank that is served, or by the refusals of those that are not.
        (agents_take_any_token, "served [0-9]+ after|stored [0-9]+ times"),
        (collector_takes_any_token, "which was over, has changed"),
        (spool_forgets_on_publish, "lost: "),
        (lease_is_never_freed, "its lease ran out"),
        (stale_beats_are_fresh, "has been silent for"),
        (beats_without_echo_are_fresh, "has been silent for"),
        (server_takes_who_serves_for_clean, "serves [0-9]+: leased to"),
        (agent_says_too_early_that_it_is_clean, "serves [0-9]+: leased to"),
    ],
)
def test_a_planted_bug_is_found(
    planted: Callable[[], AbstractContextManager[None]], found: str
) -> None:
    """Most are found within a hundred stories; none is made shorter, since that takes longest.

    The stories are drawn by a fixed seed and by the constants of whatever modules are loaded, so
    that they differ with what else this process tests: a bug has room to hide for a while.
    """
    with planted(), pytest.raises(AssertionError, match=found):
        run(
            ProtocolStory,
            examples=20_000,
            phases=[Phase.generate],
            database=None,
            derandomize=True,
            report_multiple_bugs=False,
            print_blob=False,
        )
