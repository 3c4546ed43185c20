"""The faults of a campaign. To add one: write it in the file of what it strikes, and name it there.

A new kind of victim gets a file of its own, and its list a line here.
"""

from __future__ import annotations

from tests.chaos.faults.agents import AGENT_FAULTS
from tests.chaos.faults.broker import BROKER_FAULTS
from tests.chaos.faults.contract import Fault
from tests.chaos.faults.database import DATABASE_FAULTS
from tests.chaos.faults.machines import MACHINE_FAULTS
from tests.chaos.faults.messages import MESSAGE_FAULTS
from tests.chaos.faults.servers import SERVER_FAULTS
from tests.chaos.faults.strangers import STRANGER_FAULTS

FAULTS: tuple[Fault, ...] = (
    *AGENT_FAULTS,
    *MACHINE_FAULTS,
    *MESSAGE_FAULTS,
    *SERVER_FAULTS,
    *BROKER_FAULTS,
    *DATABASE_FAULTS,
    *STRANGER_FAULTS,
)
