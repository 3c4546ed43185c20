"""Attacks on a farm in its strictest setting, of which none may succeed.

`python -m tests.attacks` tries them all and prints who tried what, and what refused it.
"""

from __future__ import annotations

from tests.attacks.messages import MESSAGES
from tests.attacks.network import NETWORK
from tests.attacks.pages import LAST, PAGES
from tests.attacks.remains import REMAINS

ATTACKS = (*NETWORK, *MESSAGES, *PAGES, *REMAINS, *LAST)
# Lines of the threat model that are left to the tests that they name, and why.
NOT_TRIED = {
    "who repeats heartbeats": "a fresh one comes each second, so that nothing would show",
    "who takes the place of a package index": "a farm that runs asks none",
}
