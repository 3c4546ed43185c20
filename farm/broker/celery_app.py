"""The one Celery configuration of server and agents: queues, task names, limits, the worker.

Celery and redis-py are imported inside functions, so a process can use the names without loading
them.

The broker only carries messages. A message may be lost, duplicated or late, so the sender of an
important message repeats it until it is answered. Redis therefore keeps no message that a worker
has taken: a worker that dies loses the message that it was handling.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from farm.broker.errors import translate_errors
from farm.broker.url import verified

if TYPE_CHECKING:
    import redis

logger = logging.getLogger(__name__)

REPORTS_QUEUE = "farm.reports"
HEARTBEATS_QUEUE = "farm.heartbeats"
REPORTS_TASK = "farm.reports"
HEARTBEAT_TASK = "farm.heartbeat"

# A read of a frozen Redis gives up after this. It must exceed the transport's BRPOP of 1 s.
SOCKET_TIMEOUT_S = 3
CONNECT_TIMEOUT_S = 3
OWN_QUEUES_WAKE_KEY = "farm.bell"


def agent_queue(agent_id: str) -> str:
    """Name the queue that only this agent consumes."""
    return f"agent.{agent_id}"


def own_queue(queue: str, agent_id: str) -> str:
    """Name the queue of one agent's messages, which the collector brings to the shared `queue`."""
    return f"{queue}.{agent_id}"


def command_task(name: str) -> str:
    """Name the Celery task of a command, a key of `COMMANDS`."""
    return f"agent.{name}"


def make_app(broker_url: str) -> Any:
    """Build the Celery app of a worker; nothing is connected yet.

    Raises:
        InvalidSpec: not a Redis URL, or one that checks no certificate.
    """
    broker_url = verified(broker_url)
    from celery import Celery

    app = Celery("benchfarm", broker=broker_url, set_as_current=False)
    app.conf.update(
        broker_transport="farm.broker.transport:Transport",
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_default_queue="farm.unused",
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_detect_quorum_queues=False,
        # Celery 6's default. It concerns tasks that acknowledge late, and none does; with False,
        # Celery warns at each loss.
        worker_cancel_long_running_tasks_on_connection_loss=True,
        broker_heartbeat=0,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,  # of what Redis refuses as well
        broker_transport_options={
            "ack_emulation": False,
            "socket_timeout": SOCKET_TIMEOUT_S,
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            "socket_keepalive": True,
            "health_check_interval": 10,
            "priority_steps": [0],
        },
    )
    return app


def run_worker(app: Any, queues: Sequence[str], *, name: str) -> None:
    """Consume `queues` in this thread until SIGTERM or SIGINT; one message at a time.

    The app's tasks must be registered before. Celery waits out connection losses, a little longer
    after each try in vain, and `farm.broker.transport` whatever Redis refuses.

    Raises:
        RuntimeError: Celery gave up; its log says why.
    """
    import warnings

    from celery.platforms import SecurityWarning
    from kombu.entity import Queue

    # Without their declaration, which a full Redis would refuse. Nobody sends by an exchange.
    app.conf.task_queues = [
        Queue(queue, no_declare=True)  # type: ignore[no-untyped-call] # kombu has no types
        for queue in queues
    ]
    # Celery warns of root for the sake of pickle, which this app refuses.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    worker = app.Worker(
        hostname=f"{name}@benchfarm",
        queues=list(queues),
        pool="solo",
        concurrency=1,  # what it may have in hand is counted in these: by default one for each core
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=True,
        quiet=True,
    )
    worker.start()
    if worker.exitcode:
        raise RuntimeError(f"Celery's worker ended by itself, with status {worker.exitcode}")


def check_broker(broker_url: str) -> None:
    """Ask the broker for a sign of life.

    Raises:
        InvalidSpec: not a Redis URL, or one that checks no certificate.
        Unreachable: it does not answer, or refuses the password.
    """
    broker_url = verified(broker_url)
    with (
        translate_errors(broker_url),
        open_client(broker_url, timeout_s=CONNECT_TIMEOUT_S) as client,
    ):
        client.ping()


def open_client(broker_url: str, *, timeout_s: float) -> redis.Redis:
    """Return a client that tries once, for that long; the caller closes it. Raises InvalidSpec."""
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    client: redis.Redis = redis.Redis.from_url(
        verified(broker_url),
        socket_timeout=timeout_s,
        socket_connect_timeout=min(timeout_s, CONNECT_TIMEOUT_S),
        # Left alone, redis-py tries three times more and triples every limit.
        retry=Retry(NoBackoff(), 0),
    )
    return client
