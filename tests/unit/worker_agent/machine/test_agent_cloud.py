"""Instance type and place by the cloud's metadata service, against servers that answer as it does.

The servers are real and local. What each cloud answers, and to what, is from its documentation.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from farm.errors import InvalidSpec
from worker_agent.config import load_config
from worker_agent.machine.cloud import CLOUDS, RetriedLabels, cloud_labels, cloud_of
from worker_agent.machine.hardware import read_facts

Service = tuple[str, int]
Answer = tuple[int, str]
# Method and path to the answer, for a request that has the header which the cloud asks for.
AZURE = {
    f"GET /metadata/instance/compute/{name}?api-version=2021-02-01&format=text": (200, value)
    for name, value in (("vmSize", "Standard_D2s_v3"), ("location", "westeurope"), ("zone", "1"))
}
AWS = {
    "GET /latest/meta-data/instance-type": (200, "c5.xlarge"),
    "GET /latest/meta-data/placement/region": (200, "eu-west-1"),
    "GET /latest/meta-data/placement/availability-zone": (200, "eu-west-1b"),
}
GCP = {
    "GET /computeMetadata/v1/instance/machine-type": (
        200,
        "projects/123456/machineTypes/e2-standard-4",
    ),
    "GET /computeMetadata/v1/instance/zone": (200, "projects/123456/zones/europe-west1-b"),
}
TOKEN = "AQAEAH-token=="


@contextmanager
def served(answers: Callable[[BaseHTTPRequestHandler], Answer]) -> Iterator[Service]:
    class Handler(BaseHTTPRequestHandler):
        def respond(self) -> None:
            status, text = answers(self)
            self.send_response(status)
            if self.headers.get("Metadata-Flavor") == "Google":
                self.send_header("Metadata-Flavor", "Google")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        do_GET = do_PUT = respond

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, request: object, client_address: object) -> None:
            pass  # whoever asks leaves in the middle of what is too long

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield "127.0.0.1", server.server_address[1]
        finally:
            server.shutdown()
            thread.join()


def azure(request: BaseHTTPRequestHandler) -> Answer:
    if request.headers.get("Metadata") != "true":
        return 400, "Bad request"
    return AZURE.get(f"{request.command} {request.path}", (404, ""))


def aws(request: BaseHTTPRequestHandler) -> Answer:
    if (request.command, request.path) == ("PUT", "/latest/api/token"):
        lifetime = request.headers.get("X-aws-ec2-metadata-token-ttl-seconds", "0")
        return (200, TOKEN) if 1 <= int(lifetime) <= 21600 else (400, "")
    if request.headers.get("X-aws-ec2-metadata-token") != TOKEN:
        return 401, "Unauthorized"
    return AWS.get(f"{request.command} {request.path}", (404, ""))


def gcp(request: BaseHTTPRequestHandler) -> Answer:
    if request.headers.get("Metadata-Flavor") != "Google":
        return 403, "Forbidden"
    return GCP.get(f"{request.command} {request.path}", (404, ""))


@pytest.mark.parametrize(
    ("name", "answers", "labels"),
    [
        ("azure", azure, ("Standard_D2s_v3", "westeurope", "1")),
        ("aws", aws, ("c5.xlarge", "eu-west-1", "eu-west-1b")),
        ("gcp", gcp, ("e2-standard-4", "europe-west1", "europe-west1-b")),
    ],
)
def test_each_cloud_gives_instance_type_region_and_zone(
    name: str,
    answers: Callable[[BaseHTTPRequestHandler], Answer],
    labels: tuple[str, str, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # A proxy of the environment would be asked about another machine, if it answered at all.
    monkeypatch.setenv("http_proxy", "http://192.0.2.1:9")
    with served(answers) as service:
        found = cloud_labels(name, service=service, limit_s=20)

    assert found == dict(zip(("instance_type", "region", "zone"), labels, strict=True))


def test_a_machine_without_a_zone_has_no_such_label() -> None:
    with served(lambda r: (200, "") if "zone" in r.path else azure(r)) as service:
        assert cloud_labels("azure", service=service, limit_s=20).keys() == {
            "instance_type",
            "region",
        }
    with served(lambda r: (404, "") if "zone" in r.path else aws(r)) as service:
        assert cloud_labels("aws", service=service, limit_s=20).keys() == {
            "instance_type",
            "region",
        }


@pytest.mark.parametrize(
    "answer",
    [
        (200, "x" * 100_000),
        (200, "two words"),
        (200, "<html>sign in</html>"),
        (200, "a,zone=2"),
        (200, "Größe"),
        (200, "\x00"),
        (500, "t2.large"),
        (302, "t2.large"),
        (401, ""),
    ],
)
@pytest.mark.parametrize("name", CLOUDS)
def test_an_answer_that_is_no_short_word_counts_as_none(name: str, answer: Answer) -> None:
    with served(lambda _: answer) as service:
        assert cloud_labels(name, service=service, limit_s=20) == {}


def test_who_does_not_prove_to_be_google_is_not_believed() -> None:
    def other(request: BaseHTTPRequestHandler) -> Answer:
        del request.headers["Metadata-Flavor"]  # and so the answer has none
        return 200, "projects/1/machineTypes/e2-standard-4"

    with served(other) as service:
        assert cloud_labels("gcp", service=service, limit_s=20) == {}


@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize(
    "sent", [b"", b"HTTP/1.1 200 OK\r\nX-", b"HTTP/1.1 200 OK\r\nContent-Length: 4000\r\n\r\n"]
)
def test_a_server_that_drips_cannot_delay_a_start(name: str, sent: bytes) -> None:
    """Each byte comes well within any limit for a single wait."""
    over = threading.Event()

    def drip() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(sent)
            while not over.wait(0.02):
                try:
                    connection.sendall(b"a")
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip)
        thread.start()
        began_s = time.monotonic()
        found = cloud_labels(name, service=listener.getsockname(), limit_s=0.3)
        took_s = time.monotonic() - began_s
        over.set()
        thread.join()

    assert found == {}
    assert took_s < 10  # it would drip for ever


def test_what_was_told_before_the_limit_is_kept() -> None:
    released = threading.Event()

    def slow(request: BaseHTTPRequestHandler) -> Answer:
        if "location" in request.path:
            released.wait(60)
        return azure(request)

    found: dict[str, str] = {}
    with served(slow) as service:
        try:
            # A machine that stands still tells nothing within a limit that is too short for it.
            for limit_s in (0.5, 2, 8, 24):
                found = found or cloud_labels("azure", service=service, limit_s=limit_s)
        finally:
            released.set()

    assert found == {"instance_type": "Standard_D2s_v3"}


def test_nobody_at_the_address_means_no_labels() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        service = listener.getsockname()

    assert cloud_labels("aws", service=service) == {}


@pytest.mark.parametrize(
    ("firmware", "cloud"),
    [
        ({"chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77\n"}, "azure"),
        ({"sys_vendor": "Microsoft Corporation\n"}, None),  # Hyper-V of somebody's own
        ({"sys_vendor": "Amazon EC2\n"}, "aws"),
        ({"sys_vendor": "Xen\n", "bios_version": "4.11.amazon\n"}, "aws"),
        ({"sys_vendor": "Xen\n", "bios_version": "4.11\n"}, None),
        ({"product_name": "Google Compute Engine\n"}, "gcp"),
        ({"sys_vendor": "QEMU\n"}, None),
        ({}, None),
    ],
)
def test_the_firmware_says_which_cloud_to_ask(firmware: dict[str, str], cloud: str | None) -> None:
    assert cloud_of(lambda file: firmware.get(file, "")) == cloud


def test_the_setting_names_the_cloud_or_forbids_to_ask() -> None:
    def cloud(setting: str) -> str | None:
        return load_config({"AGENT_ID": "vm-1", "AGENT_CLOUD": setting}).cloud

    assert cloud("never") is None
    assert cloud("aws") == "aws"
    with pytest.raises(InvalidSpec, match="AGENT_CLOUD: expected one of AUTO"):
        cloud("cumulus")


def test_labels_that_are_given_win_over_the_clouds() -> None:
    environ = {"AGENT_ID": "vm-1", "AGENT_CLOUD": "aws", "AGENT_LABELS": "zone=mine,rack=7"}
    with served(aws) as service:
        ask = partial(cloud_labels, service=service, limit_s=20)
        facts = read_facts(load_config(environ), ask_cloud=ask)

    assert facts.labels == {
        "instance_type": "c5.xlarge",
        "region": "eu-west-1",
        "zone": "mine",
        "rack": "7",
    }


def test_a_cloud_that_is_silent_at_first_is_asked_until_it_says_what_machine_this_is() -> None:
    answers = [{}, {"zone": "1"}, {"instance_type": "c5.xlarge", "zone": "2"}]
    late = RetriedLabels("aws", known={}, ask=lambda cloud: answers.pop(0), pauses_s=(0,) * 9)
    thread = late.start()
    assert thread is not None
    thread.join()
    assert answers == []
    assert late.reported == {"instance_type": "c5.xlarge", "zone": "2"}


def test_a_cloud_that_never_answers_is_asked_no_more() -> None:
    clouds: list[str] = []

    def silent(cloud: str) -> dict[str, str]:
        clouds.append(cloud)
        return {}

    late = RetriedLabels("aws", known={}, ask=silent, pauses_s=(0,) * 3)
    thread = late.start()
    assert thread is not None
    thread.join()
    assert (clouds, late.reported) == (["aws"] * 3, {})


@pytest.mark.parametrize(("cloud", "known"), [(None, {}), ("aws", {"instance_type": "mine"})])
def test_nobody_is_asked_again_for_what_is_known(cloud: str | None, known: dict[str, str]) -> None:
    assert RetriedLabels(cloud, known=known).start() is None
