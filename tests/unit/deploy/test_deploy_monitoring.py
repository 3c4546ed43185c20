"""The dashboard and the rules ask for what /metrics exports, and are read by who has to."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from farm.broker.health_records import COLLECTOR, SCHEDULER
from farm.broker.state import QUEUES
from web.api.metrics import PROMETHEUS_METRICS

ROOT = Path(__file__).parents[3]
PROMETHEUS = ROOT / "deploy" / "prometheus"
EXPORTED = {metric.name: metric.kind for metric in PROMETHEUS_METRICS}
# The scraper's own, of every target.
OF_PROMETHEUS = {"up"}
JOB = "benchfarm"
needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool is not installed"
)


def rules() -> list[dict[str, Any]]:
    data = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())
    return [rule for group in data["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    dashboard = json.loads((ROOT / "deploy" / "grafana" / "benchfarm.json").read_text())
    found: list[dict[str, Any]] = dashboard["panels"]
    return found


def questions() -> list[str]:
    expressions = [target["expr"] for panel in panels() for target in panel["targets"]]
    return expressions + [rule["expr"] for rule in rules()]


def metrics_of(question: str) -> set[str]:
    """Words that are neither functions, labels in braces or behind by, nor durations."""
    bare = re.sub(r"\{[^}]*\}|\[[^\]]*\]|\b(?:by|without) \([^)]*\)|\boffset \w+", "", question)
    return {
        word
        for word, call in re.findall(r"\b([a-z_][a-z0-9_]*)\b(\s*\()?", re.sub(r"\d\S*", "", bare))
        if not call
    }


def test_the_reader_of_questions_finds_the_metrics_alone() -> None:
    question = 'sum by (kind) (rate(a_total{x="y"}[5m])) * 60 > abs(b) offset 1h and c < 1e9'
    assert metrics_of(question) == {"a_total", "b", "c", "and"}


@pytest.mark.parametrize("question", questions())
def test_every_metric_that_is_asked_for_is_exported(question: str) -> None:
    assert metrics_of(question)
    assert metrics_of(question) <= EXPORTED.keys() | OF_PROMETHEUS


@pytest.mark.parametrize("question", questions())
def test_counters_and_nothing_else_are_asked_for_their_growth(question: str) -> None:
    growing = set(re.findall(r"\b(?:rate|increase)\(([a-z_]+)", question))
    counters = {name for name in metrics_of(question) if EXPORTED.get(name) == "counter"}

    assert growing == counters


@pytest.mark.parametrize("question", questions())
def test_labels_that_are_asked_for_have_values_that_exist(question: str) -> None:
    known = {
        "job": {JOB},
        "process": {SCHEDULER, COLLECTOR},
        "queue": set(QUEUES),
    }
    for label, value in re.findall(r'(\w+)="([^"]*)"', question):
        assert value in known[label]


def test_the_dashboard_shows_every_metric_of_the_farm() -> None:
    shown = {name for panel in panels() for t in panel["targets"] for name in metrics_of(t["expr"])}

    assert EXPORTED.keys() - shown == {"process_start_time_seconds"}


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    assert len({panel["id"] for panel in panels()}) == len(panels())
    taken: set[tuple[int, int]] = set()
    for panel in panels():
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_prometheus_scrapes_what_the_rules_and_the_dashboard_call_its_job() -> None:
    config = yaml.safe_load((PROMETHEUS / "prometheus.yml").read_text())

    assert [scrape["job_name"] for scrape in config["scrape_configs"]] == [JOB]
    assert config["rule_files"] == ["rules.yml"]
    assert all(rule["annotations"]["summary"] for rule in rules())


@needs_promtool
@pytest.mark.parametrize(
    "command",
    [
        ("check", "rules", str(PROMETHEUS / "rules.yml")),
        ("check", "config", "--syntax-only", str(PROMETHEUS / "prometheus.yml")),
    ],
    ids=lambda command: command[1],
)
def test_promtool_finds_no_fault(command: tuple[str, ...]) -> None:
    checked = subprocess.run(
        ["promtool", *command], capture_output=True, text=True, timeout=60, check=False
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr


# A series in which each rule has reason to speak, an hour after the farm was well.
TROUBLES = {
    "FarmUnseen": 'up{job="benchfarm"} 1x60 0x30',
    "FarmBrokerDown": "farm_broker_up 1x60 0x30",
    "FarmProcessMissing": 'farm_processes{process="collector"} 1x60 0x30',
    "FarmProcessStuck": 'farm_process_worked_ago_seconds{process="scheduler"} 1x60 61x30',
    "FarmAgentsLost": "farm_agents_live 4x60 3x30",
    "FarmLeasesExpire": "farm_lease_expiries_total 2x60 3x30",
    "FarmReportsHeldBack": 'farm_agent_report_lag_seconds{agent="a"} 0x60 61x30',
    "FarmQueueGrows": 'farm_queue_messages{queue="reports"} 0x60 1001x30',
    "FarmClocksDiffer": 'farm_agent_clock_offset_seconds{agent="a"} 0x60 -2x30',
    "FarmDiskFull": 'farm_agent_disk_free_bytes{agent="a"} 2000000000x60 1000x30',
}


@needs_promtool
def test_each_rule_is_silent_while_all_is_well_and_speaks_of_its_trouble(tmp_path: Path) -> None:
    assert TROUBLES.keys() == {rule["alert"] for rule in rules()}
    tests = []
    for rule in rules():
        series, _, values = TROUBLES[rule["alert"]].partition(" ")
        labels = dict(re.findall(r'(\w+)="([^"]*)"', series))
        kept = {} if "increase" in rule["expr"] else labels
        exported = {**kept, **rule["labels"]}
        tests.append(
            {
                "interval": "1m",
                "input_series": [{"series": series, "values": values}],
                "alert_rule_test": [
                    {"eval_time": "55m", "alertname": rule["alert"], "exp_alerts": []},
                    {
                        "eval_time": "80m",
                        "alertname": rule["alert"],
                        "exp_alerts": [{"exp_labels": exported}],
                    },
                ],
            }
        )
    file = tmp_path / "tests.yml"
    plain = yaml.safe_load((PROMETHEUS / "rules.yml").read_text())
    for group in plain["groups"]:
        for rule in group["rules"]:
            del rule["annotations"]  # texts, which name values
    (tmp_path / "rules.yml").write_text(yaml.safe_dump(plain))
    file.write_text(yaml.safe_dump({"rule_files": ["rules.yml"], "tests": tests}))
    checked = subprocess.run(
        ["promtool", "test", "rules", str(file)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert checked.returncode == 0, checked.stdout + checked.stderr
