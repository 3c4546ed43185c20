"""Labs for tests. Where root or the vde programs are missing, tests are skipped and say so."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from farm.lab.lab import Lab
from farm.lab.system import what_is_missing
from tests.lab.stations import Stations

_missing = what_is_missing()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent.name == "lab":
            item.add_marker(pytest.mark.root)
            if _missing:
                item.add_marker(pytest.mark.skip(reason=_missing))


@pytest.fixture(scope="module")
def shared_lab() -> Iterator[Lab]:
    """Two hosts for all tests of a module; making them takes a fifth of a second."""
    with Lab(hosts=2) as lab:
        yield lab


@pytest.fixture(scope="module")
def shared_stations(shared_lab: Lab) -> Stations:
    return Stations(shared_lab)


@pytest.fixture
def stations(shared_stations: Stations) -> Iterator[Stations]:
    """Hosts that answer over TCP, over links that do nothing yet, and are so again afterwards."""
    yield shared_stations
    for host in shared_stations.lab.hosts:
        shared_stations.lab.heal(host)
    shared_stations.lab.set_link()
