"""`farm export --to mlflow` to a real server, read back by MLflow's own client."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from farm.embedded.redis import free_port
from farm.errors import Unreachable
from farm.trackers.mlflow import MlflowTracker
from farm.trackers.sending import send_sweep
from tests.commands.farm_command import FarmCommand
from tests.services.mlflow_server import MlflowServer
from tests.stored.tracked_sweep import GO, NAME, add_tracked_sweep

WHOLE = "benchfarm.whole_since_ns"

mlflow = pytest.importorskip("mlflow", reason="needs the extra mlflow")


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MlflowServer]:
    server = MlflowServer(tmp_path_factory.mktemp("mlflow"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def server(started: MlflowServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MlflowServer:
    """The server, with an experiment of the test's own."""
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", str(tmp_path))
    return started


@pytest.fixture
def farm(engine: sa.Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FarmCommand:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return FarmCommand(engine, tmp_path / "home", monkeypatch)


def send(farm: FarmCommand, server: MlflowServer) -> str:
    """Export the sweep; return the last line, after those on how far it is."""
    done = farm.run("export", NAME, "--to", "mlflow", "--uri", server.uri)
    assert (done.exit_code, done.stdout) == (0, ""), done.output
    return done.stderr.splitlines()[-1]


class _Page(BaseHTTPRequestHandler):
    """What any web server might answer."""

    def do_GET(self) -> None:
        body = b"<html>Welcome</html>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@contextmanager
def other_server() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def client_of(server: MlflowServer) -> Any:
    return mlflow.MlflowClient(tracking_uri=server.uri)


def runs_of(server: MlflowServer, tmp_path: Path) -> list[Any]:
    client = client_of(server)
    experiment = client.get_experiment_by_name(str(tmp_path))
    return list(client.search_runs([experiment.experiment_id], order_by=["attributes.run_name"]))


def history(server: MlflowServer, run: Any, name: str) -> list[tuple[int, int, float]]:
    points = client_of(server).get_metric_history(run.info.run_id, name)
    return sorted((one.step, one.timestamp, one.value) for one in points)


def everything(server: MlflowServer, tmp_path: Path) -> Any:
    """Return what the runs have, but for when each was sent."""
    return [
        (
            run.data.params,
            {n: v for n, v in run.data.tags.items() if n != WHOLE},
            {n: history(server, run, n) for n in run.data.metrics},
        )
        for run in runs_of(server, tmp_path)
    ]


def at(second: float) -> int:
    """Return the milliseconds of a second after go."""
    return round((GO.timestamp() + second) * 1000)


def test_mlflow_shows_a_sweep(
    engine: sa.Engine, farm: FarmCommand, server: MlflowServer, tmp_path: Path
) -> None:
    gang_id, alone_id = add_tracked_sweep(engine)
    assert send(farm, server) == "2 jobs sent to mlflow"

    parent, gang, alone = runs_of(server, tmp_path)
    assert parent.info.run_name == NAME
    assert [gang.info.run_name, alone.info.run_name] == [f"job {gang_id}", f"job {alone_id}"]
    assert gang.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert gang.info.status == "FINISHED"
    assert gang.info.end_time == at(60)
    assert gang.data.tags["benchfarm.job"] == str(gang_id)
    assert gang.data.tags["benchfarm.flags"] == "steal"
    assert gang.data.tags["benchfarm.version"] == "0.1.0"

    parameters = {"strategy": "mwms_ring", "world_size": "2", "one_way_delay_ms": "20.0"}
    assert parameters.items() <= gang.data.params.items()
    assert "bandwidth_mbit_per_s" not in gang.data.params
    assert history(server, gang, "step_time_s") == [(0, at(60), 0.25)]

    assert history(server, gang, "step/time_s") == [
        (1, at(1.5), 0.125),
        (2, at(1.625), 0.25),
        (3, at(1.875), 0.5),
    ]
    assert history(server, gang, "step/warmup_time_s") == [(0, at(1), 0.5)]
    assert history(server, gang, "epoch/val_accuracy_ratio") == [(0, at(2), 0.875)]
    assert "epoch/val_loss" not in gang.data.metrics

    for node, percent in (("a1", 25.0), ("a2", 50.0)):
        cpu = history(server, gang, f"system/{node}/cpu_utilization_percentage")
        assert cpu == [(tick, at(tick), percent) for tick in (1, 2, 4)]
        memory = history(server, gang, f"system/{node}/system_memory_usage_megabytes")
        assert {value for _, _, value in memory} == {3.0}
        for name, rate in (("net_rx_bytes_per_s", 2e6), ("net_tx_bytes_per_s", 1e6)):
            assert {v for _, _, v in history(server, gang, f"system/{node}/{name}")} == {rate}
        of_gpu = history(server, gang, f"system/{node}/gpu_0_utilization_percentage")
        assert {value for _, _, value in of_gpu} == {50.0}
        odd = {n: v for n, v in gang.data.metrics.items() if n.startswith(f"system/{node}/__")}
        assert sorted(odd.values()) == [1.0, 2.0]


def test_a_second_export_adds_nothing(
    engine: sa.Engine, farm: FarmCommand, server: MlflowServer, tmp_path: Path
) -> None:
    add_tracked_sweep(engine)
    send(farm, server)
    before = everything(server, tmp_path)
    assert send(farm, server) == "0 jobs sent to mlflow, 2 jobs there already"
    assert everything(server, tmp_path) == before


def test_a_run_that_was_sent_in_part_is_completed(
    engine: sa.Engine, farm: FarmCommand, server: MlflowServer, tmp_path: Path
) -> None:
    add_tracked_sweep(engine)
    send(farm, server)
    client, whole = client_of(server), everything(server, tmp_path)
    _, gang, _ = runs_of(server, tmp_path)
    tags = {n: v for n, v in gang.data.tags.items() if n != WHOLE}
    client.delete_run(gang.info.run_id)
    cut = client.create_run(gang.info.experiment_id, gang.info.start_time, tags, "job 1")
    for step, timestamp, value in history(server, gang, "step/time_s")[:2]:
        client.log_metric(cut.info.run_id, "step/time_s", value, timestamp, step)

    assert send(farm, server) == "1 job sent to mlflow, 1 job there already"
    assert everything(server, tmp_path) == whole


def test_two_exports_at_once_leave_each_run_once(
    engine: sa.Engine, farm: FarmCommand, server: MlflowServer, tmp_path: Path
) -> None:
    add_tracked_sweep(engine)
    # Both have the experiment, and neither has a run yet.
    client_of(server).create_experiment(str(tmp_path))
    together = threading.Barrier(2)

    def export() -> None:
        tracker = MlflowTracker(server.uri)
        together.wait()
        send_sweep(engine, tracker, NAME, progress=lambda *_: None)

    with ThreadPoolExecutor(2) as pool:
        for one in [pool.submit(export) for _ in range(2)]:
            one.result()
    parent, *jobs = runs_of(server, tmp_path)
    assert [run.info.run_name for run in jobs] == ["job 1", "job 2"]
    assert {run.data.tags["mlflow.parentRunId"] for run in jobs} == {parent.info.run_id}


def test_an_export_that_is_overtaken_by_another_leaves_each_run_once(
    engine: sa.Engine,
    farm: FarmCommand,
    server: MlflowServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_tracked_sweep(engine)
    create_run = mlflow.MlflowClient.create_run

    def create_run_late(client: Any, *arguments: Any, **options: Any) -> Any:
        # The first export has looked for the sweep's run, found none, and noted the time.
        monkeypatch.setattr(mlflow.MlflowClient, "create_run", create_run)
        send_sweep(engine, MlflowTracker(server.uri), NAME, progress=lambda *_: None)
        return create_run(client, *arguments, **options)

    monkeypatch.setattr(mlflow.MlflowClient, "create_run", create_run_late)
    send_sweep(engine, MlflowTracker(server.uri), NAME, progress=lambda *_: None)
    parent, *jobs = runs_of(server, tmp_path)
    assert [run.info.run_name for run in jobs] == ["job 1", "job 2"]
    assert {run.data.tags["mlflow.parentRunId"] for run in jobs} == {parent.info.run_id}


def test_a_server_that_ends_in_the_middle_has_everything_after_another_export(
    engine: sa.Engine, farm: FarmCommand, server: MlflowServer, tmp_path: Path
) -> None:
    add_tracked_sweep(engine)
    with pytest.raises(Unreachable, match=f"MLflow at {server.uri} does not do as asked"):
        send_sweep(engine, MlflowTracker(server.uri), NAME, progress=lambda *_: server.kill())
    server.start()
    assert send(farm, server) == "1 job sent to mlflow, 1 job there already"
    assert [run.info.run_name for run in runs_of(server, tmp_path)] == [NAME, "job 1", "job 2"]


def test_a_server_that_is_away_is_said_in_one_line_without_the_password(
    engine: sa.Engine, farm: FarmCommand
) -> None:
    add_tracked_sweep(engine)
    port = free_port()
    uri = f"http://someone:secret@127.0.0.1:{port}"
    line = farm.refusal("export", NAME, "--to", "mlflow", "--uri", uri, status=1)
    assert f"MLflow at http://127.0.0.1:{port} " in line
    assert "secret" not in line


def test_an_address_of_something_else_is_refused_in_one_line(
    engine: sa.Engine, farm: FarmCommand, tmp_path: Path
) -> None:
    add_tracked_sweep(engine)
    with other_server() as uri:
        line = farm.refusal("export", NAME, "--to", "mlflow", "--uri", uri, status=1)
    assert f"MLflow at {uri} does not do as asked" in line


@pytest.mark.parametrize("uri", ["", "ftp://somewhere", "http://[", "a folder", "http://é"])
def test_an_address_that_is_none_is_refused(engine: sa.Engine, farm: FarmCommand, uri: str) -> None:
    add_tracked_sweep(engine)
    done = farm.run("export", NAME, "--to", "mlflow", "--uri", uri)
    assert done.exit_code in (1, 2)
    assert "--uri" in done.stderr


def test_a_file_is_no_place_for_runs(engine: sa.Engine, farm: FarmCommand) -> None:
    command = ("export", NAME, "--to", "mlflow", "--uri", "http://localhost", "--out", "file")
    assert "leave out --out" in farm.refusal(*command, status=2)
