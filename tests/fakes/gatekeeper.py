"""An agent that does nothing but close ports: `gatekeeper.py STATE_DIR LIMIT_S PORT PEER...`.

TRAINER_UID in its environment is whose packets go to the peers alone.

It listens on the port and the next one, on every interface, and closes both to all but the peers.
Then it says "closed", opens them when it is told to on standard input, says "opened", and ends
when the input does.
"""

from __future__ import annotations

import logging
import os
import socket
import sys

from farm.errors import EmulationFailed
from farm.messages.commands import RankAddress
from worker_agent.network.emulators.contracts import Site
from worker_agent.network.port_gate import PortGate
from worker_agent.trainer_process import privilege


def main() -> None:
    state_dir, limit_s, first, *hosts = sys.argv[1:]
    logging.basicConfig(stream=sys.stderr)
    privilege.drop_capabilities()
    port = int(first)
    listening = [
        socket.create_server(("", number), family=socket.AF_INET6, dualstack_ipv6=True)
        for number in (port, port + 1)
    ]
    site = Site(state_dir=state_dir, interface="eth0", cpus=(0,), spared_ports=())
    uid = os.environ.get("TRAINER_UID")
    gate = PortGate(site, trainer_uid=None if uid is None else int(uid))
    own, *peers = (
        RankAddress(rank=rank, host=host, probe_port=port, trainer_ports=(port + 1,))
        for rank, host in enumerate(("10.99.0.1", *hosts))
    )
    gate.close(own, tuple(peers), limit_s=float(limit_s))
    print("closed", flush=True)
    for _ in sys.stdin:
        try:
            gate.check()
        except EmulationFailed as error:
            print(error, file=sys.stderr, flush=True)
        gate.look()
        gate.open()
        print("opened", flush=True)
    del listening


if __name__ == "__main__":
    main()
