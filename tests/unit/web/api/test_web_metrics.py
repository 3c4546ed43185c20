"""The text format of Prometheus."""

from __future__ import annotations

from web.api.metrics import family


def test_a_metric_has_its_help_its_type_and_a_line_for_each_label() -> None:
    text = family("farm_jobs", "gauge", "Jobs.", [({"state": "failed"}, 2), ({}, 0.5)])
    assert text == (
        "# HELP farm_jobs Jobs.\n"
        "# TYPE farm_jobs gauge\n"
        'farm_jobs{state="failed"} 2\n'
        "farm_jobs 0.5\n"
    )


def test_labels_and_help_cannot_break_out_of_their_line() -> None:
    text = family("m", "gauge", "a\\b\nc", [({"x": 'a"b\\c\nd'}, 1)])
    assert text == '# HELP m a\\\\b\\nc\n# TYPE m gauge\nm{x="a\\"b\\\\c\\nd"} 1\n'


def test_large_counts_keep_every_digit() -> None:
    assert family("m", "gauge", "h", [({}, 2**53 - 1)]).endswith("m 9007199254740991\n")
