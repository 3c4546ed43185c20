"""What ran out of memory: one rule in answers, predictions and plans."""

from __future__ import annotations

from typing import Any

import pytest

from farm.messages.trainer_lines import FailureKind
from farm.recommend.answering.answer import answer_from
from farm.recommend.configuration import Configuration
from farm.recommend.contracts import Evidence, Objective, Question
from farm.recommend.memory_limits import MemoryLimits
from farm.recommend.plans.grid import works
from farm.recommend.predictions import KnownConfigurations
from farm.recommend.setup import Setup
from tests.unit.recommend.answering.test_recommend_measured import evidence
from tests.unit.recommend.answering.test_recommend_options import predicted

OUT = FailureKind.OUT_OF_MEMORY.value
DOUBT = "it may run out of memory, as world size 4 did with 512 examples for each replica"


def setup(world_size: int, batch: int, **changes: Any) -> Configuration:
    fields: dict[str, Any] = {"strategy": "single" if world_size == 1 else "ring", **changes}
    return Configuration(world_size=world_size, global_batch_size=batch, **fields)


@pytest.mark.parametrize(
    ("requested", "fails"),
    [
        (setup(2, 1024), True),
        (setup(2, 1025), True),
        (setup(2, 1023), False),
        (setup(4, 4096), False),
        (setup(2, 2048, instance_type="large"), False),
        (setup(2, 2048, server_count=1), False),
    ],
)
def test_what_ran_out_of_memory_fails_with_larger_batches_everywhere(
    requested: Configuration, fails: bool
) -> None:
    full, worked = [setup(2, 1024)], [setup(2, 512), setup(4, 512)]
    assert (MemoryLimits.of(full, worked).exceeded_by(requested) is not None) is fails
    assert works([requested], [(c, OUT) for c in full], measured=worked) == (
        [] if fails else [requested]
    )
    known = KnownConfigurations.of_all(worked, [(c, OUT) for c in full])
    given = {
        name: getattr(requested, name)
        for name in ("strategy", "instance_type", "world_size", "server_count", "global_batch_size")
    }
    assert (known.resolve(given).unknown_because is not None) is fails


def test_what_later_did_with_more_is_no_limit() -> None:
    limits = MemoryLimits.of([setup(2, 256)], [setup(2, 512)])
    assert limits.exceeded_by(setup(2, 1024)) is None
    assert limits.doubt(setup(4, 2048)) is None


def test_another_size_that_ran_out_with_no_more_for_each_replica_is_a_doubt() -> None:
    full = [setup(4, 2048)]
    assert MemoryLimits.of(full, []).doubt(setup(2, 1024)) == DOUBT
    assert MemoryLimits.of(full, []).doubt(setup(2, 1022)) is None
    assert MemoryLimits.of(full, []).doubt(setup(2, 1024, strategy="star")) is None
    assert MemoryLimits.of(full, [setup(8, 4096)]).doubt(setup(2, 1024)) is None
    alone = [setup(1, 512)]
    assert MemoryLimits.of(alone, []).doubt(setup(2, 1024, strategy="star")) is not None


def test_several_ranks_on_a_machine_are_doubted_by_what_it_has_of_all_of_them() -> None:
    alone = MemoryLimits.of([setup(1, 512)], [])
    several = "ranks_per_agent=4"
    assert alone.doubt(setup(4, 512, setup=Setup.read(several))) is not None
    assert alone.doubt(setup(4, 511, setup=Setup.read(several))) is None
    assert alone.doubt(setup(8, 1023, setup=Setup.read(several), server_count=2)) is None


def gang(measurement_id: int, world_size: int, batch: int, status: str = "ok") -> Evidence:
    return evidence(
        measurement_id,
        world_size=world_size,
        global_batch_size=batch,
        status=status,
        step_time_s=None if status != "ok" else 0.1,
        time_per_epoch_s=None,
        steps_per_epoch=None,
    )


def test_a_recommended_size_that_may_run_out_of_memory_is_doubted() -> None:
    known = [
        gang(1, 2, 512),
        gang(2, 4, 2048, OUT),
        gang(3, 4, 1024),
        evidence(4, global_batch_size=256, time_per_epoch_s=None, steps_per_epoch=None),
    ]
    question = Question(global_batch_size=1024, one_way_delay_s=0.02)
    found = predicted(*known, global_batch_size=1024, world_sizes=(2,))
    cautions = answer_from(found, question, Objective(), known).cautions
    assert DOUBT in cautions
    assert DOUBT not in answer_from(found, question, Objective(), [known[0], known[2]]).cautions
