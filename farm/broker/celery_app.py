"""The one Celery configuration of server and agents: queues, task names, limits, publishing.

Everything that publishes or consumes builds its app here, since the transport's settings must be
equal on every client: the shortest visibility timeout of any of them would win. Celery and
redis-py are imported inside functions, so that a process may know the names without their cost.

The broker only carries. A message may be lost, doubled or late, so whoever sends something that
matters sends it again until it is answered.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from farm.broker.errors import reported
from farm.broker.task_message import task_text
from farm.broker.url import verified
from farm.errors import NotFound
from farm.messages.commands import COMMAND_NAMES, Command
from farm.messages.envelope import seal
from farm.messages.signing import claimed_agent, is_signed

if TYPE_CHECKING:
    import redis

logger = logging.getLogger(__name__)

REPORTS_QUEUE = "farm.reports"
HEARTBEATS_QUEUE = "farm.heartbeats"
REPORTS_TASK = "farm.reports"
HEARTBEAT_TASK = "farm.heartbeat"

VISIBILITY_TIMEOUT_S = 60
# A read of a frozen Redis gives up after this. It must exceed the transport's BRPOP of 1 s.
SOCKET_TIMEOUT_S = 3
CONNECT_TIMEOUT_S = 3
RECONNECT_PAUSE_S = 1.0
# A dead collector must not fill Redis: beyond these none is added. What came first stays, since it
# has waited for longest; an agent whose reports were not added sends them again.
HEARTBEATS_KEPT = 10_000
REPORTS_KEPT = 5_000
# An agent that signs adds to queues of its own, so that a flood of one keeps nobody else waiting,
# and rings a bell. An honest one has hardly ever two messages there, but while no collector runs.
OWN_KEPT = 20
BELL_KEY = "farm.bell"


def agent_queue(agent_id: str) -> str:
    """Name the queue that only this agent consumes."""
    return f"agent.{agent_id}"


def own_queue(queue: str, agent_id: str) -> str:
    """Name the queue of one agent's messages, which the collector brings to the shared `queue`."""
    return f"{queue}.{agent_id}"


def command_task(name: str) -> str:
    """Name the Celery task of a command, a key of `COMMANDS`."""
    return f"agent.{name}"


def make_app(broker_url: str, *, owner: str) -> Any:
    """Build a Celery app; nothing is connected yet.

    `owner` names the Redis keys of messages taken but not yet acknowledged: one for each agent
    and one for the server, so that no agent can see or restore another's messages.

    Raises:
        InvalidSpec: not a Redis URL, or one that checks no certificate.
    """
    broker_url = verified(broker_url)
    from celery import Celery

    from farm.broker.transport import register

    app = Celery(owner, broker=broker_url, set_as_current=False)
    app.conf.update(
        broker_transport=register(),
        task_serializer="json",
        accept_content=["json"],
        task_ignore_result=True,
        task_acks_late=True,
        task_default_queue="farm.unused",
        worker_prefetch_multiplier=1,
        worker_enable_remote_control=False,
        worker_send_task_events=False,
        worker_hijack_root_logger=False,
        worker_redirect_stdouts=False,
        worker_detect_quorum_queues=False,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        broker_heartbeat=0,
        broker_connection_retry_on_startup=True,
        broker_connection_max_retries=None,
        broker_channel_error_retry=True,  # of what Redis refuses as well
        broker_transport_options={
            "visibility_timeout": VISIBILITY_TIMEOUT_S,
            "socket_timeout": SOCKET_TIMEOUT_S,
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            "socket_keepalive": True,
            "health_check_interval": 10,
            "unacked_restore_interval": 5,
            "unacked_key": f"farm.unacked.{owner}",
            "unacked_index_key": f"farm.unacked_index.{owner}",
            "priority_steps": [0],
        },
    )
    return app


def run_worker(app: Any, queues: Sequence[str], *, name: str) -> None:
    """Consume `queues` in this thread until SIGTERM or SIGINT; one message at a time.

    The app's tasks must be registered before. Connection losses are waited out, and so is whatever
    else Redis answers with an error.

    Raises:
        RuntimeError: Celery gave up; its log says why.
    """
    import warnings

    from celery.platforms import SecurityWarning
    from celery.worker.consumer import Consumer

    class PatientConsumer(Consumer):  # type: ignore[misc] # Celery has no types
        """Waits before it connects again: a Redis that refuses something is connected at once."""

        def on_connection_error_after_connected(self, exc: Exception) -> None:
            with warnings.catch_warnings():
                # With each connection that is lost Celery tells what another version will do.
                warnings.simplefilter("ignore")
                super().on_connection_error_after_connected(exc)
            time.sleep(RECONNECT_PAUSE_S)

        def on_connection_error_before_connected(self, exc: Exception) -> None:
            super().on_connection_error_before_connected(exc)
            time.sleep(RECONNECT_PAUSE_S)

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
        consumer_cls=PatientConsumer,
    )
    worker.start()
    if worker.exitcode:
        raise RuntimeError(f"Celery's worker ended by itself, with status {worker.exitcode}")


# Makes a sealed command one that its agent believes: takes the agent, the task and the envelope.
Signer = Callable[[str, str, dict[str, object]], dict[str, object]]


def send_command(
    app: Any, agent_id: str, command: Command, *, signer: Signer | None = None
) -> None:
    """Put a command into an agent's queue, see `send_commands`."""
    send_commands(app, [(agent_id, command)], signer=signer)


def send_commands(
    app: Any, commands: Iterable[tuple[str, Command]], *, signer: Signer | None = None
) -> None:
    """Put commands into their agents' queues, in order and with one exchange.

    What is meant for an agent without a key that counts is left out; some may be sent twice.

    Raises:
        Unreachable: within about 10 s; some of them may have been sent.
    """
    texts = [
        (agent_queue(agent_id), task_text(agent_queue(agent_id), task, envelope))
        for agent_id, task, envelope in _addressed(commands, signer=signer)
    ]

    def put(channel: Any) -> None:
        with channel.conn_or_acquire() as client:
            pipe = client.pipeline(transaction=False)
            for queue, text in texts:
                pipe.lpush(queue, text)
            added = pipe.execute(raise_on_error=False)
        refused = [outcome for outcome in added if isinstance(outcome, Exception)]
        if len(refused) == len(texts):  # Redis may be full
            raise refused[0]
        for outcome in refused:  # a key of that name that is no list is nobody else's fault
            logger.warning("command not sent: %s", outcome)

    if texts:
        _twice(app, put)


_Addressed = tuple[str, str, dict[str, object]]  # agent, task and envelope


def _addressed(
    commands: Iterable[tuple[str, Command]], *, signer: Signer | None
) -> Iterator[_Addressed]:
    for agent_id, command in commands:
        task = command_task(COMMAND_NAMES[type(command)])
        envelope = seal(command)
        if signer is not None:
            try:
                envelope = signer(agent_id, task, envelope)
            except NotFound as error:  # it was removed meanwhile, or never added
                logger.warning("command not sent: %s", error, extra={"agent_id": agent_id})
                continue
        yield agent_id, task, envelope


def publish_reports(app: Any, envelope: dict[str, object]) -> None:
    """Put a sealed batch into the collector's queue, unless that is as long as it may get.

    Raises:
        Unreachable: within about 10 s.
    """
    _publish(app, REPORTS_QUEUE, REPORTS_TASK, envelope, most=REPORTS_KEPT)


def publish_heartbeat(app: Any, envelope: dict[str, object]) -> None:
    """Put an already sealed heartbeat into the queue, unless nobody has taken any for long.

    Celery's `expires` is not used: it compares the sender's clock with the receiver's, and an
    agent whose clock is wrong would never be heard. Freshness is judged by `BeatEcho` instead.
    """
    _publish(app, HEARTBEATS_QUEUE, HEARTBEAT_TASK, envelope, most=HEARTBEATS_KEPT)


def purge_queue(app: Any, queue: str) -> int:
    """Drop every message waiting in `queue` and return their number.

    Raises:
        Unreachable: the broker does not answer.
    """
    with reported(app.conf.broker_url), app.connection_for_write() as connection:
        return int(connection.default_channel.queue_purge(queue) or 0)


def _publish(app: Any, queue: str, task: str, envelope: dict[str, object], *, most: int) -> None:
    from redis.exceptions import NoPermissionError

    text = task_text(queue, task, envelope)
    agent_id = claimed_agent(envelope) if is_signed(envelope) else None
    own = None if agent_id is None else own_queue(queue, agent_id)

    def put(channel: Any) -> None:
        with channel.conn_or_acquire() as client:
            if own is not None and own not in channel.forbidden:
                try:
                    _add(client, channel.lengths, own, text, most=OWN_KEPT)
                    client.lpush(BELL_KEY, "1")
                except NoPermissionError as error:  # the account was made by an earlier version
                    logger.warning("%s; `farm agent sync` on the server grants it", error)
                    channel.forbidden.add(own)
                else:
                    return
            _add(client, channel.lengths, queue, text, most=most)

    _twice(app, put)


def _add(client: Any, lengths: dict[str, int], queue: str, text: str, *, most: int) -> None:
    # Asked only at first, and of a queue that was full when this one last added to it. An agent may
    # not shorten the queue: that would remove what others have sent.
    if lengths.get(queue, most) >= most:
        lengths[queue] = client.llen(queue)
    if lengths[queue] < most:
        lengths[queue] = client.lpush(queue, text)


def _twice(app: Any, put: Callable[[Any], None]) -> None:
    """Call `put` with a channel; once more at once where that fails, and then no more.

    The second time is for a connection that Redis closed while it was idle; one that cannot be made
    at all, Kombu has tried for seconds. More would only hide an outage from the caller, who has a
    schedule of its own for sending again.

    Raises:
        Unreachable: it failed again.
    """
    import redis

    with (
        reported(app.conf.broker_url),
        app.producer_pool.acquire(block=True, timeout=10) as sender,
    ):
        try:
            put(sender.channel)
        except (redis.RedisError, OSError) as error:
            logger.debug("once more: %s", error)
            put(sender.channel)


def check_broker(broker_url: str) -> None:
    """Ask the broker for a sign of life.

    Raises:
        InvalidSpec: not a Redis URL, or one that checks no certificate.
        Unreachable: it does not answer, or refuses the password.
    """
    broker_url = verified(broker_url)
    with reported(broker_url), open_client(broker_url, timeout_s=CONNECT_TIMEOUT_S) as client:
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
