"""An agent that does nothing but shape: `shaper.py STATE_DIR INTERFACE PEER LIMIT_S`.

It delays and limits what leaves for the peer, where the kernel has netem, and sets the rest of its
queues and filters where it has not. It says "shaped", undoes that when asked to on
standard input, says "undone", and ends when the input does.
"""

from __future__ import annotations

import sys

from farm.configuration.spec import NetworkProfile
from farm.errors import EmulationFailed
from farm.messages.commands import RankAddress
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.emulators.tc_netem import TcNetem, find_obstacle
from worker_agent.network.gang_network import Shaping
from worker_agent.network.guard import NoteFile
from worker_agent.trainer_process import privilege


def main() -> None:
    state_dir, interface, host, limit_s = sys.argv[1:]
    privilege.drop_capabilities()
    site = Site(state_dir=state_dir, interface=interface, cpus=(0,), spared_ports=())
    shaping = Shaping(TcNetem(site), site)
    peer = RankAddress(rank=1, host=host, probe_port=20000, trainer_ports=(20001,))
    profile = NetworkProfile(one_way_delay_s=0.01, bandwidth_bytes_per_s=1e6)
    if find_obstacle() is not None:
        profile = NetworkProfile()
    for tries_left in reversed(range(20)):
        try:
            shaping.apply(profile, (peer,), limit_s=float(limit_s))
        except EmulationFailed:
            if not tries_left:
                raise
        else:
            if NoteFile(state_dir).is_there:
                break
        # An idle agent beside it undoes what nobody has asked for, also in the middle.
        shaping.undo()
    else:
        sys.exit("whatever was shaped was undone at once")
    print("shaped", flush=True)
    for _ in sys.stdin:
        shaping.undo()
        print("undone", flush=True)


if __name__ == "__main__":
    main()
