"""Keys for the agents of an embedded farm whose broker others can reach, as a lab's."""

from __future__ import annotations

import dataclasses
import datetime as dt
from collections.abc import Sequence

from farm.broker.url import stays_here
from farm.keys.signing_key import make_signing_key, read_signing_key
from farm.messages.agent_keys import derive_key, key_text
from farm.settings.server import Settings


def with_signing_key(settings: Settings) -> Settings:
    """Return the settings with a signing key of the farm's own home, where one is needed."""
    if settings.signing_key_file is not None or stays_here(settings.broker_url):
        return settings
    path = settings.home / "signing.key"
    if not path.exists():
        make_signing_key(path)
    return dataclasses.replace(settings, signing_key_file=path)


def agent_keys(settings: Settings, agent_ids: Sequence[str]) -> dict[str, str]:
    """Return the keys of these agents, made where there is none; nothing without a signing key."""
    from farm.store.agents.agent_keys import add_agent_key, key_records
    from farm.store.engine import make_engine, writing

    if settings.signing_key_file is None:
        return {}
    farm_key = read_signing_key(settings.signing_key_file)
    now = dt.datetime.now(dt.UTC)
    engine = make_engine(settings.database_url)
    try:
        with writing(engine) as session:
            known = key_records(session)
            records = [known.get(one) or add_agent_key(session, one, now=now) for one in agent_ids]
    finally:
        engine.dispose()
    return {r.agent_id: key_text(derive_key(farm_key, r.agent_id, r.number)) for r in records}
