"""Python client of a running farm, also for notebooks.

farm = benchfarm.connect()
sweep = farm.submit("sweep.toml").wait(progress=True)
frame = sweep.measurements()
"""

from benchfarm.client.connect import connect
from benchfarm.client.errors import (
    ClientError,
    NoSuchThing,
    NotAuthorized,
    NotConnected,
    RequestRefused,
    WrongServer,
)
from benchfarm.client.farm import Farm

__all__ = [
    "ClientError",
    "Farm",
    "NoSuchThing",
    "NotAuthorized",
    "NotConnected",
    "RequestRefused",
    "WrongServer",
    "connect",
]
