"""What an agent's own account at the broker may do there, as rules of a Redis access list.

The queue of its commands and the keys of what it has taken and not yet acknowledged are its own. To
its queues of reports and heartbeats it may add, and ask for their length; what lies there it can
neither see nor remove. That takes a selector, and so Redis 7 or Valkey. Names of agents have no
character that means more than itself in a pattern of keys.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from farm.messages.agents import check_agent_id

# Without `client|setinfo`, by which redis-py tells its version: Redis 7.0 does not know it.
# Of every client of redis-py and of Kombu's consumer, in the versions that are installed here; the
# test that runs jobs under these rules says when they change. None runs a script:
# `farm.broker.transport` does without Kombu's lock, which would take that.
_COMMANDS = (
    *("hello", "ping", "select", "client|setname"),
    *("multi", "exec", "discard", "unwatch"),
)
# By what a key is. Were its queue a hash, each batch of commands with one for it would fail, and
# the server take its broker for dead.
_OF_QUEUE = ("brpop", "lpush", "rpush", "llen", "del")
_OF_UNACKED = ("hset", "hget", "hdel", "watch")
_OF_INDEX = ("zadd", "zrem", "zrange")
_OF_BINDINGS = ("sadd",)


def account_name(agent_id: str) -> str:
    """Name an agent's account at the broker."""
    return f"agent.{check_agent_id(agent_id)}"


def account_rules(
    agent_id: str, passwords: Collection[str], *, queue: str, sent_queues: Collection[str]
) -> list[str]:
    """Return what `ACL SETUSER` takes behind the name; whatever the account could do before ends.

    `queue`: of its commands. `sent_queues`: to which it may add. The passwords are hashed, as
    Redis keeps them, so that none stands in a log of commands.
    """
    own = (
        (_OF_QUEUE, (queue,)),
        (_OF_UNACKED, (f"farm.unacked.{queue}",)),
        (_OF_INDEX, (f"farm.unacked_index.{queue}",)),
        (_OF_BINDINGS, tuple(f"_kombu.{k}.{queue}" for k in ("binding", "binding_permanent"))),
    )
    hashes = [f"#{hashlib.sha256(password.encode()).hexdigest()}" for password in passwords]
    adding = " ".join(f"%W~{name}" for name in sent_queues)
    return [
        *("reset", "on", *hashes),
        *(f"+{command}" for command in _COMMANDS),
        *(_selector(commands, [f"~{key}" for key in keys]) for commands, keys in own),
        f"(+lpush +llen {adding})",
    ]


def _selector(commands: Collection[str], keys: Collection[str]) -> str:
    return f"({' '.join([*(f'+{command}' for command in commands), *keys])})"
