"""What a program with a stolen agent's key can do to a farm, for a minute of its ten.

`python -m tests.attacks.stolen_key` takes all ten.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attacks.stolen_key import Outcome, attack
from tests.e2e.security.strict_farm import what_lacks

pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(900)]

LENGTH_S = 60.0


def _is_harmless(outcome: Outcome) -> None:
    assert outcome.excesses() == [], "\n".join(outcome.lines())


def test_on_the_signed_wire_it_costs_the_others_little(tmp_path: Path) -> None:
    _is_harmless(attack(tmp_path, is_strict=False, length_s=LENGTH_S))


def test_in_the_strictest_setting_with_tls_too(tmp_path: Path) -> None:
    if (lack := what_lacks()) is not None:
        pytest.skip(f"this machine cannot: {lack}")
    _is_harmless(attack(tmp_path, is_strict=True, length_s=LENGTH_S))
