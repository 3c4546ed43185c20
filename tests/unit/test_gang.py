from __future__ import annotations

from farm.core.commands import RankAddress
from farm.core.gang import cluster_spec


def address(rank: int, host: str, *ports: int) -> RankAddress:
    return RankAddress(rank=rank, host=host, probe_port=1, trainer_ports=ports)


def test_addresses_are_listed_in_order_of_rank_whatever_order_they_came_in() -> None:
    cluster = cluster_spec(
        [address(1, "10.0.0.2", 21), address(0, "10.0.0.1", 20)], [("worker",), ("worker",)]
    )
    assert cluster == {"worker": ("10.0.0.1:20", "10.0.0.2:21")}


def test_a_rank_of_two_roles_has_an_address_for_each() -> None:
    cluster = cluster_spec(
        [address(0, "10.0.0.1", 20, 30), address(1, "10.0.0.2", 21)],
        [("worker", "ps"), ("worker",)],
    )
    assert cluster == {
        "worker": ("10.0.0.1:20", "10.0.0.2:21"),
        "ps": ("10.0.0.1:30",),
    }


def test_an_ipv6_address_is_bracketed() -> None:
    assert cluster_spec([address(0, "fd00::1", 20)], [("worker",)]) == {"worker": ("[fd00::1]:20",)}
