"""A farm as `farm up` starts it measures real gangs of both frameworks, without any fake."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import select

from farm.store.engine import make_engine, reading
from farm.store.result_tables import MeasurementRow
from farm.trainers.all_reduce import ring_all_reduce
from tests.e2e.farm_up import farm_up, submit_and_wait

# A machine that does other things as well needs minutes for what takes one alone.
pytestmark = [
    *(pytest.mark.tensorflow, pytest.mark.torch),
    pytest.mark.timeout(900),
]
STEPS = 20
SWEEP = f"""
name = "real ranks"
[[case]]
model = "mlp"
dataset = "digits"
strategy = ["mwms_ring", "ps_async", "torch_ddp"]
world_size = 2
global_batch_size = 64
steps = {STEPS}
warmup_steps = 2
"""


def test_gangs_of_a_ring_a_parameter_server_and_pytorch_are_measured(tmp_path: Path) -> None:
    (tmp_path / "sweep.toml").write_text(SWEEP)
    with farm_up(tmp_path, agent_count=2) as environ:
        submit_and_wait(tmp_path / "sweep.toml", environ)
    engine = make_engine(f"sqlite:///{tmp_path}/farm.db")
    with reading(engine) as session:
        rows = {row.strategy: row for row in session.scalars(select(MeasurementRow))}
    engine.dispose()
    assert set(rows) == {"mwms_ring", "ps_async", "torch_ddp"}
    for row in rows.values():
        assert row.step_time_s is not None
        assert row.step_time_s > 0
        assert row.accuracy is not None
    assert rows["ps_async"].update_count == 2 * STEPS
    assert (rows["torch_ddp"].framework or "").startswith("torch ")
    ring = rows["mwms_ring"]
    assert ring.gradient_bytes is not None
    theory = ring_all_reduce(2, ring.gradient_bytes)
    assert ring.sent_bytes_per_step == pytest.approx(theory.bytes, rel=0.10)
