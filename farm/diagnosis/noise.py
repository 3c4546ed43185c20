"""Whether what the farm measures is disturbed so far that it does not count."""

from __future__ import annotations

from collections.abc import Mapping

from farm.diagnosis.finding import Finding, doubt, well
from farm.text.nouns import counted


def judge_noise(void_reasons: Mapping[str, int], *, measured_count: int) -> list[Finding]:
    """Say how many attempts of the last hour were void. `measured_count`: how many were not.

    `void_reasons`: what disturbed them, in words, and how many each.
    """
    void_count = sum(void_reasons.values())
    if not void_count:
        return [well("no attempt of the last hour was void")]
    example = max(void_reasons, key=lambda reason: void_reasons[reason])
    return [
        doubt(
            f"{void_count} of {counted(void_count + measured_count, 'attempt')} of the last hour "
            f"were void, since something else used the machine ({example}); their jobs were tried "
            "again",
            "give agents cores that nobody else uses; where they have to share a machine, "
            "FARM_NOISE_POLICY=flag on the server keeps what is measured, with the reasons",
        )
    ]
