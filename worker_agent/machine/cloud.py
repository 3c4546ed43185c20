"""Reads the machine's instance type and zone from the cloud's metadata service.

Azure, AWS and Google Cloud offer the service at the same link-local address; the firmware's names
say which of them it is. One deadline bounds the whole lookup, and any error means that nothing is
known: an agent starts with or without these facts. Any program may answer at that address, so only
short words are accepted.
"""

from __future__ import annotations

import http.client
import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from farm.values.fields import SHORT_NAME

logger = logging.getLogger(__name__)

_LIMIT_S = 1.0
_SERVICE = ("169.254.169.254", 80)
_FIRMWARE = Path("/sys/class/dmi/id")
_LONGEST_ANSWER_BYTES = 4096
_AWS_TOKEN = "X-aws-ec2-metadata-token"  # a header's name
# A service that was not there for 20 minutes is switched off, as it may be.
_PAUSES_S = (5.0, 15.0, 60.0, 240.0, 900.0)
_NEEDED = "instance_type"


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """How to recognise one cloud and query its metadata service.

    `firmware`: part of a text of /sys/class/dmi/id. `paths`: label to where its value is.
    `token_path`: the path of a token to get first. `proof`: header that every answer must have.
    """

    firmware: Mapping[str, str]
    paths: Mapping[str, str]
    headers: Mapping[str, str] = field(default_factory=dict)
    token_path: str | None = None
    proof: tuple[str, str] | None = None


def _azure_path(name: str) -> str:
    return f"/metadata/instance/compute/{name}?api-version=2021-02-01&format=text"


# Microsoft, "Azure Instance Metadata Service"; AWS, "Use the Instance Metadata Service"
# (version 2, which asks for a token); Google, "About VM metadata".
CLOUDS: Mapping[str, Cloud] = {
    "azure": Cloud(
        # Hyper-V elsewhere has the same vendor, and not this tag.
        firmware={"chassis_asset_tag": "7783-7084-3265-9085-8269-3286-77"},
        paths={
            "instance_type": _azure_path("vmSize"),
            "region": _azure_path("location"),
            "zone": _azure_path("zone"),
        },
        headers={"Metadata": "true"},
    ),
    "aws": Cloud(
        # The second is that of the Xen instances, such as t2.
        firmware={"sys_vendor": "Amazon EC2", "bios_version": "amazon"},
        paths={
            "instance_type": "/latest/meta-data/instance-type",
            "region": "/latest/meta-data/placement/region",
            "zone": "/latest/meta-data/placement/availability-zone",
        },
        token_path="/latest/api/token",
    ),
    "gcp": Cloud(
        firmware={"product_name": "Google Compute Engine"},
        paths={
            "instance_type": "/computeMetadata/v1/instance/machine-type",
            "zone": "/computeMetadata/v1/instance/zone",
        },
        headers={"Metadata-Flavor": "Google"},
        proof=("Metadata-Flavor", "Google"),
    ),
}


def cloud_of(firmware: Callable[[str], str]) -> str | None:
    """Return the cloud that the firmware names, given a reader of its texts; None: of no such."""
    for name, cloud in CLOUDS.items():
        if any(part in firmware(file) for file, part in cloud.firmware.items()):
            return name
    return None


def read_firmware(file: str) -> str:
    """Return one text of the firmware, or nothing where the machine has none."""
    try:
        return (_FIRMWARE / file).read_text()
    except (OSError, ValueError):
        return ""


def cloud_labels(
    name: str, *, service: tuple[str, int] = _SERVICE, limit_s: float = _LIMIT_S
) -> dict[str, str]:
    """Return labels from the cloud's metadata service: `instance_type`, `region`, `zone`.

    Returns after `limit_s` at the latest, with the labels received until then.
    """
    cloud, deadline_s = CLOUDS[name], time.monotonic() + limit_s
    labels = {}
    try:
        headers = dict(cloud.headers)
        if cloud.token_path is not None:
            token_headers = {f"{_AWS_TOKEN}-ttl-seconds": "60"}
            token = _ask(
                service, "PUT", cloud.token_path, headers=token_headers, deadline_s=deadline_s
            )
            headers[_AWS_TOKEN] = token or ""
        for label, path in cloud.paths.items():
            value = _ask(
                service, "GET", path, headers=headers, deadline_s=deadline_s, proof=cloud.proof
            )
            # Google's values are paths; the last part is the name.
            word = (value or "").rpartition("/")[2]
            if SHORT_NAME.fullmatch(word):
                labels[label] = word
    except (OSError, http.client.HTTPException, ValueError) as error:
        logger.warning("the metadata service of %s was of no help: %s", name, error)
    if name == "gcp" and "zone" in labels:
        labels["region"] = labels["zone"].rpartition("-")[0] or labels["zone"]
    return labels


def _ask(
    service: tuple[str, int],
    method: str,
    path: str,
    *,
    headers: Mapping[str, str],
    deadline_s: float,
    proof: tuple[str, str] | None = None,
) -> str | None:
    """Return a short answer; None where there is none, as of a zone where a region has none.

    Raises:
        OSError, HTTPException, ValueError: it does not answer in time, or nothing that counts.
    """
    with _DeadlineSocket(deadline_s) as link:
        link.connect(service)
        # Made by hand, so that no proxy of the environment is asked.
        connection = http.client.HTTPConnection(*service)
        connection.sock = link
        connection.request(method, path, headers={"Connection": "close", **headers})
        response = connection.getresponse()
        if response.status == http.HTTPStatus.NOT_FOUND:
            return None
        body = response.read(_LONGEST_ANSWER_BYTES + 1)
        if response.status != http.HTTPStatus.OK or len(body) > _LONGEST_ANSWER_BYTES:
            raise ValueError(f"{method} {path} was answered {response.status}, {len(body)} bytes")
        if proof is not None and response.getheader(proof[0]) != proof[1]:
            raise ValueError(f"{method} {path} was answered without {proof[0]}")
        return body.decode("ascii").strip()


class _DeadlineSocket(socket.socket):
    """A socket with one deadline for all its waits, so that slow answers end, too."""

    def __init__(self, deadline_s: float) -> None:
        super().__init__(socket.AF_INET, socket.SOCK_STREAM)
        self._deadline_s = deadline_s

    def connect(self, address: tuple[str, int]) -> None:  # type: ignore[override] # IPv4 alone
        self._limit_to_deadline()
        super().connect(address)

    def sendall(self, data: Any, flags: int = 0) -> None:
        self._limit_to_deadline()
        super().sendall(data, flags)

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        self._limit_to_deadline()
        return super().recv_into(buffer, nbytes, flags)

    def _limit_to_deadline(self) -> None:
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("it took too long")
        self.settimeout(left_s)


class RetriedLabels:
    """Labels that the metadata service did not return at the agent's start, requested again.

    A VM may boot before its network or that service is ready. Without the instance type its
    measurements would have no price until the agent is restarted. `reported`: the labels received
    so far; a thread requests them again once `start` was called.
    """

    def __init__(
        self,
        cloud: str | None,
        *,
        known: Mapping[str, str],
        ask: Callable[[str], dict[str, str]] = cloud_labels,
        pauses_s: Sequence[float] = _PAUSES_S,
    ) -> None:
        self.reported: Mapping[str, str] = {}
        self._ask, self._pauses_s = ask, pauses_s
        self._cloud = None if _NEEDED in known else cloud

    def start(self) -> threading.Thread | None:
        """Request labels until the instance type is known; None if there is nothing to request."""
        if self._cloud is None:
            return None
        thread = threading.Thread(
            target=self._keep_asking, args=(self._cloud,), name="cloud labels", daemon=True
        )
        thread.start()
        return thread

    def _keep_asking(self, cloud: str) -> None:
        never = threading.Event()
        for pause_s in self._pauses_s:
            never.wait(pause_s)
            self.reported = {**self.reported, **self._ask(cloud)}
            if _NEEDED in self.reported:
                return
