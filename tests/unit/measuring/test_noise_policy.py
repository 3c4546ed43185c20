"""Who decides whether a disturbed measurement is void: the setting, or else the kind of farm."""

from __future__ import annotations

from pathlib import Path

import pytest

from farm.embedded.farm import EmbeddedFarm
from farm.embedded.signals import StopSignals
from farm.errors import InvalidSpec
from farm.measuring.noise import NoisePolicy
from farm.scheduler.main import rules_of
from farm.settings.server import environment_of, load_settings


@pytest.mark.parametrize(
    ("given", "policy"),
    [("", NoisePolicy.VOID), ("void", NoisePolicy.VOID), ("FLAG", NoisePolicy.FLAG)],
)
def test_a_farm_voids_unless_told_to_flag(given: str, policy: NoisePolicy) -> None:
    settings = load_settings({"FARM_NOISE_POLICY": given})
    assert rules_of(settings).limits.noise.policy is policy


def test_another_word_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="FARM_NOISE_POLICY: expected one of void, flag, got"):
        load_settings({"FARM_NOISE_POLICY": "ignore"})


@pytest.mark.parametrize(("given", "policy"), [("", "flag"), ("void", "void")])
def test_a_whole_farm_on_one_machine_flags_unless_told_to_void(
    given: str, policy: str, tmp_path: Path
) -> None:
    settings = load_settings({"FARM_NOISE_POLICY": given, "FARM_HOME": str(tmp_path)})
    farm = EmbeddedFarm(settings, agents=1, signals=StopSignals(), report=lambda _: None)
    assert environment_of(farm.settings)["FARM_NOISE_POLICY"] == policy
