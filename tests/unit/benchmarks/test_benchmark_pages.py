"""The benchmark of pages: what it counts as a point, and as the time until a viewer is told."""

from __future__ import annotations

import json

import pytest

from benchmarks.large_farm.farm_size import LARGE, SMALL
from benchmarks.web.pages import longest_line
from benchmarks.web.viewers import Viewer, delays_s


def test_the_longest_line_of_an_answer_is_that_of_any_rank_or_of_the_steps() -> None:
    ranks = [{"rank": 0, "samples": [{}, {}]}, {"rank": 1, "samples": [{}]}]
    assert longest_line(json.dumps({"samples": ranks, "steps": [{}]})) == 2
    assert longest_line(json.dumps({"samples": ranks, "steps": [{}, {}, {}]})) == 3


def test_the_longest_line_of_a_page_is_drawn_by_the_script() -> None:
    data = json.dumps({"data": [{"x": [1, 2, 3, 4], "y": [1, 2, 3, 4]}, {"type": "other"}]})
    assert longest_line(f'<script type="application/json">{data}</script>') == 4
    assert longest_line("<p>nothing</p>") == 0


def test_a_viewer_is_told_by_the_first_event_after_a_change() -> None:
    viewer = Viewer(page="/", events="/events", told_at_s=[1.0, 3.0, 6.0])
    assert delays_s([viewer], [2.0, 2.5, 5.0]) == pytest.approx([1.0, 0.5, 1.0])


def test_changes_outside_of_what_a_viewer_heard_tell_nothing() -> None:
    viewer = Viewer(page="/", events="/events", told_at_s=[1.0, 3.0])
    assert delays_s([viewer], [0.5, 3.5]) == []
    assert delays_s([Viewer(page="/", events="/events")], [0.5]) == []


def test_the_large_farm_is_the_one_that_is_promised() -> None:
    assert LARGE.agent_count == 100
    assert LARGE.job_count == 5000
    assert LARGE.sample_count == 10_000_000
    for size in (LARGE, SMALL):
        assert size.done_count + size.active_count < size.job_count, "some wait"
