"""Controls a running `wirefilter`, which carries and shapes one host's packets.

A wire has separate settings for its two directions. The agent's emulator shapes packets that leave
its host, and the owner of the lab shapes packets that arrive, so neither undoes the other's
settings. For the same reason cutting a wire uses a setting of its own, the largest packet that
passes.
"""

from __future__ import annotations

import enum
import math
import re
import socket
import time
from pathlib import Path

from farm.configuration.spec import MAX_LAB_BANDWIDTH_BYTES_PER_S, VDE_LINK, NetworkProfile
from farm.errors import EmulationFailed, InvalidSpec

# A socket per link, named after the host's interface; sockets are found by path, whatever the
# network namespace of who looks for them.
LINKS = Path("/run/benchfarm-lab/links")
# Every host's interface is limited to this: beyond it the program between the hosts drops
# packets, and TCP's repairs would be measured instead of the link.
MAX_BANDWIDTH_BYTES_PER_S = MAX_LAB_BANDWIDTH_BYTES_PER_S
# What several hosts send to one at once is limited by the wire: by a tenth more, so that what
# one of them sends waits at its own interface, and not in two queues.
_TOGETHER_BYTES_PER_S = 1.1 * MAX_BANDWIDTH_BYTES_PER_S
# What a limited link holds back before it drops, as a common router does.
WIRE_QUEUE_S = 0.2
_MIN_QUEUE_BYTES = 20_000
_TIMEOUT_S = 5.0
_PROMPT = b"VDEwf$ "
_DONE = "1000 Success"
_SMALLEST_PACKET = 1  # as the largest that passes: none does
_PERCENT = 100.0
_MS = 1000.0


class WireDirection(enum.Enum):
    """As `wirefilter` has it: its left end is the switch, its right end the host."""

    FROM_HOST = "RL"
    TO_HOST = "LR"


class Wirefilter:
    """The wire of one host, by its management socket. Each call is one short connection."""

    def __init__(self, path: Path, *, timeout_s: float = _TIMEOUT_S) -> None:
        self._path = path
        self._timeout_s = timeout_s

    @classmethod
    def of_interface(cls, interface: str) -> Wirefilter:
        return cls(LINKS / interface)

    @property
    def is_there(self) -> bool:
        """Whether this process can reach it."""
        try:
            return self._path.is_socket()
        except PermissionError:
            return False  # labs are root's

    def apply(self, profile: NetworkProfile, *, direction: WireDirection) -> None:
        """Replace whatever the direction had, and read back that it has the profile.

        Raises:
            InvalidSpec: a wire cannot do it.
            EmulationFailed: it does not answer, or has something else now.
        """
        check_profile(profile)
        wanted = _parameters(profile, direction)
        found = self._ask(
            *(f"{name} {direction.value} {value:.9g}" for name, value in wanted.items()), "showinfo"
        )
        self._compare(found, wanted, direction)

    def check(self, profile: NetworkProfile, *, direction: WireDirection) -> None:
        """See whether the direction still has what `apply` gave it.

        Raises:
            EmulationFailed: it has something else, or does not answer.
        """
        self._compare(self._ask("showinfo"), _parameters(profile, direction), direction)

    def read(self, direction: WireDirection) -> NetworkProfile:
        """Return the direction's present settings.

        Raises:
            EmulationFailed: it does not answer.
        """
        found = _shown(self._ask("showinfo"), direction)
        bandwidth = found["bandwidth"]
        return NetworkProfile(
            one_way_delay_s=found["delay"] / _MS,
            packet_loss_ratio=found["loss"] / _PERCENT,
            bandwidth_bytes_per_s=bandwidth if 0 < bandwidth <= MAX_BANDWIDTH_BYTES_PER_S else None,
        )

    def cut(self) -> None:
        """Drop every packet in both directions, silently, until `heal`; the rest stays set."""
        self._let_pass(_SMALLEST_PACKET)

    def heal(self) -> None:
        """Let packets pass again, treated as before; twice is harmless."""
        self._let_pass(0)  # without a limit

    def _let_pass(self, size: int) -> None:
        found = self._ask(*(f"mtu {d.value} {size}" for d in WireDirection), "showinfo")
        for direction in WireDirection:
            self._compare(found, {"mtu": size}, direction)

    def _compare(self, found: str, wanted: dict[str, float], direction: WireDirection) -> None:
        # A value that it cannot read it takes for success, and leaves the old one.
        shown = _shown(found, direction)
        for name, value in wanted.items():
            # Six digits are shown.
            if not math.isclose(shown[name], value, rel_tol=1e-4, abs_tol=1e-6):
                raise EmulationFailed(
                    f"link {self._path.name}: {name} should be {value:g} and is {shown[name]:g}"
                )

    def _ask(self, *commands: str) -> str:
        """Send the commands one by one; return the last one's answer."""
        deadline = time.monotonic() + self._timeout_s
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
                _limit(connection, deadline)
                connection.connect(str(self._path))
                answer = _until_prompt(connection, deadline)
                for command in commands:
                    _limit(connection, deadline)
                    connection.sendall(command.encode() + b"\n")
                    answer = _until_prompt(connection, deadline)
                    if _DONE not in answer:
                        words = " ".join(answer.split())
                        raise EmulationFailed(
                            f"link {self._path.name}: refused '{command}': {words}"
                        )
        except OSError as error:
            raise EmulationFailed(
                f"link {self._path.name} does not answer at {self._path}: {error}"
            ) from error
        return answer


def check_profile(profile: NetworkProfile) -> None:
    """Refuse settings that a wire cannot have.

    Raises:
        InvalidSpec: jitter, say, or more bandwidth than a host's interface has.
    """
    for field in profile.beyond(VDE_LINK):
        raise InvalidSpec(field, getattr(profile, field), "nothing: a lab's links cannot do it")
    bandwidth = profile.bandwidth_bytes_per_s
    if bandwidth is not None and bandwidth > MAX_BANDWIDTH_BYTES_PER_S:
        raise InvalidSpec(
            "bandwidth_bytes_per_s",
            bandwidth,
            f"at most {MAX_BANDWIDTH_BYTES_PER_S:g}, what each host of a lab has",
        )


def _parameters(profile: NetworkProfile, direction: WireDirection) -> dict[str, float]:
    """Return the profile in wirefilter's words and units; 0 stands for no limit."""
    bandwidth = profile.bandwidth_bytes_per_s
    if bandwidth is None and direction is WireDirection.TO_HOST:
        bandwidth = _TOGETHER_BYTES_PER_S
    queue_bytes = 0.0
    if bandwidth is not None:
        # What is under way counts as queued, too.
        held = bandwidth * (WIRE_QUEUE_S + profile.one_way_delay_s)
        queue_bytes = float(max(_MIN_QUEUE_BYTES, round(held)))
    return {
        "delay": profile.one_way_delay_s * _MS,
        "loss": profile.packet_loss_ratio * _PERCENT,
        "bandwidth": bandwidth or 0.0,
        "chanbufsize": queue_bytes,
    }


_SHOWN_AS = {
    "delay": "Delay",
    "loss": "Loss",
    "bandwidth": "Bandw",
    "chanbufsize": "Cap.",
    "mtu": "MTU",
}
_ARROWS = {WireDirection.FROM_HOST: "R->L", WireDirection.TO_HOST: "L->R"}


def _shown(answer: str, direction: WireDirection) -> dict[str, float]:
    """Read lines such as "Delay  L->R 20.5+0U   R->L 7+0U"; only the first number counts."""
    values = {}
    for name, title in _SHOWN_AS.items():
        pattern = rf"^{re.escape(title)}\s.*?{re.escape(_ARROWS[direction])}\s+([\d.e+-]*\d)"
        found = re.search(pattern, answer, re.MULTILINE)
        if found is None:
            raise EmulationFailed(f"wirefilter says nothing of '{title}': another version?")
        values[name] = float(re.split(r"(?<!e)\+", found[1])[0])
    return values


def _until_prompt(connection: socket.socket, deadline: float) -> str:
    """Read to the end of a reply: what comes before is not the whole of it."""
    data = b""
    while not data.endswith(_PROMPT):
        _limit(connection, deadline)
        part = connection.recv(4096)
        if not part:
            raise ConnectionResetError("it hung up")
        data += part
    return data.decode(errors="replace")


def _limit(connection: socket.socket, deadline: float) -> None:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError("timed out")
    connection.settimeout(left_s)
