"""Attacks on a farm in its strictest setting, of which none may succeed.

`python -m tests.attacks` tries them all and prints who tried what, and what refused it.
"""

from __future__ import annotations

from tests.attacks.messages import MESSAGES
from tests.attacks.network import NETWORK
from tests.attacks.pages import PAGES

ATTACKS = (*NETWORK, *MESSAGES, *PAGES)
