import dataclasses
import json
import typing
from typing import Any

import pytest

from farm.configuration.spec import JobSpec, NetworkProfile
from farm.errors import InvalidSpec
from farm.messages.agents import AgentFacts, AgentState, BeatEcho, Hardware, Heartbeat
from farm.messages.commands import (
    COMMAND_NAMES,
    COMMANDS,
    BeatConfirmed,
    BundlePiece,
    Command,
    Confirm,
    Go,
    Peers,
    RankAddress,
    Shape,
    StartRank,
    StopAttempt,
)
from farm.messages.envelope import WIRE_VERSION, UnknownVersion, seal, unknown_version_in, unseal
from farm.messages.reports import (
    LONGEST_LOG_CHARACTERS,
    LONGEST_LOG_PART_CHARACTERS,
    REPORT_NAMES,
    REPORTS,
    LogPart,
    PeerBandwidth,
    PeerRtt,
    PeersMeasured,
    Prepared,
    RankEnded,
    RankStarted,
    Report,
    ReportBatch,
    ReportBody,
    Sample,
    Samples,
    Shaped,
    StepTimes,
)
from farm.messages.trainer_lines import (
    DatasetSource,
    Epoch,
    Failure,
    FailureKind,
    StepKind,
    StepProfile,
    TrainerResult,
)
from farm.values.codec import canonical_json, from_json, to_json

PROFILE = NetworkProfile(one_way_delay_s=0.02, bandwidth_bytes_per_s=12.5e6)
SPEC = JobSpec(
    model="mlp",
    dataset="digits",
    strategy="mwms_ring",
    world_size=2,
    global_batch_size=64,
    network=PROFILE,
    steps=10,
    labels={"instance_type": "X"},
)
ADDRESS = RankAddress(rank=1, host="10.0.0.2", probe_port=20000, trainer_ports=(20001, 20002))
SOURCE = DatasetSource(
    name="digits",
    origin="scikit-learn 1.9.1",
    sha256="ab" * 32,
    is_synthetic=False,
    train_examples_count=1437,
    test_examples_count=360,
)
RESULT = TrainerResult(
    timed_step_count=10,
    window_step_count=10,
    timed_window_s=0.5,
    timed_begun_monotonic_s=1234.5,
    interface_rx_bytes=None,
    interface_tx_bytes=0,
    payload_rx_bytes=0,
    payload_tx_bytes=0,
    train_loss=0.3,
    val_accuracy_ratio=None,
    peak_resident_bytes=10**9,
    seed=0,
    profile=StepProfile(step_count=5, step_time_s=0.05, compute_s=0.04, communication_s=0.01),
    details={"learning_rate": 0.1, "places": ["a", None]},
)
FAILURE = Failure(kind=FailureKind.OUT_OF_MEMORY, message="the cgroup's counter rose")

COMMAND_EXAMPLES: list[Command] = [
    StartRank(token=7, rank=1, agent_count=2, roles=("worker",), spec=SPEC, prepare_timeout_s=60.0),
    Peers(token=7, addresses=(ADDRESS,), timeout_s=20.0),
    Shape(token=7, profile=PROFILE, timeout_s=30.0),
    Shape(token=7, profile=None, timeout_s=30.0),
    Go(token=7, cluster={"worker": ("10.0.0.1:1", "10.0.0.2:2")}, timeout_s=60.0),
    StopAttempt(token=7, reason="cancelled"),
    Confirm(generation="g1", number=12),
    BeatConfirmed(boot_id="b1", counter=3, server_time_s=1.5),
    BundlePiece(bundle="b005a2175131", number=0, sha256="b0", piece_count=1, content="UEs="),
]
REPORT_EXAMPLES: list[ReportBody] = [
    Prepared(address=ADDRESS, framework="tensorflow 2.21.0", dataset=SOURCE, prepare_s=3.5),
    PeersMeasured(rtts=(PeerRtt(rank=0, rtt_s=0.0001, probe_count=9),)),
    Shaped(emulator="netem", rtts=()),
    Shaped(
        emulator="netem",
        rtts=(),
        bandwidths=(PeerBandwidth(rank=0, bytes_per_s=1.25e6, byte_count=10**6),),
    ),
    RankStarted(parameter_count=100, gradient_bytes=400, connect_s=0.2, first_step_s=1.1),
    Samples(samples=(Sample(tick=0), Sample(tick=2, cpu_ratio=0.0, extra={"gpu0_ratio": 0.5}))),
    StepTimes(kind=StepKind.TIMED, first_step=5, begun_s=2.5, times_s=(0.01, 0.02)),
    Epoch(
        epoch=0,
        train_s=3.5,
        step_count=23,
        train_loss=0.5,
        val_loss=None,
        val_accuracy_ratio=0.9,
    ),
    LogPart(first_character=7, text="a line\nand \N{SNOWMAN}\n"),
    RankEnded(result=RESULT, failure=None, timed_begun_s=2.0, log_tail="a line\nanother\n"),
    RankEnded(result=None, failure=FAILURE, timed_begun_s=None, log_tail=""),
]
BEAT = Heartbeat(
    agent_id="a1",
    boot_id="b1",
    counter=9,
    state=AgentState.BUSY,
    serving_token=7,
    highest_token=7,
    agent_time_s=1e9,
    echo=BeatEcho(server_time_s=1e9, elapsed_s=0.5),
    facts=AgentFacts(
        machine_id="m1",
        address="10.0.0.2",
        interface="eth0",
        first_port=20000,
        last_port=20999,
        cpus=(0, 1),
        labels={"instance_type": "X"},
        capabilities=("netem",),
        hardware=Hardware(
            cpu_model="A CPU",
            core_count=2,
            memory_bytes=2**33,
            kernel="6.1",
            tensorflow_version=None,
            python_version="3.11.7",
            benchfarm_version="0.1.0",
        ),
    ),
)


def over_the_wire(message: object) -> Any:
    return json.loads(json.dumps(seal(message)))


def test_every_kind_of_message_has_a_name_and_an_example() -> None:
    assert set(COMMANDS.values()) == {type(c) for c in COMMAND_EXAMPLES}
    assert set(COMMANDS.values()) == set(typing.get_args(Command))
    assert set(REPORTS.values()) == {type(r) for r in REPORT_EXAMPLES}
    assert set(REPORTS.values()) == set(typing.get_args(ReportBody))
    assert len(COMMAND_NAMES) == len(COMMANDS)
    assert len(REPORT_NAMES) == len(REPORTS)


@pytest.mark.parametrize(
    "message", [*COMMAND_EXAMPLES, *REPORT_EXAMPLES, BEAT], ids=lambda m: type(m).__name__
)
def test_a_message_arrives_as_it_was_sent(message: object) -> None:
    assert unseal(type(message), over_the_wire(message)) == message


@pytest.mark.parametrize("body", REPORT_EXAMPLES, ids=lambda body: type(body).__name__)
def test_a_numbered_report_carries_its_body_through_a_batch(body: ReportBody) -> None:
    fields = to_json(body)
    assert isinstance(fields, dict)
    report = Report(number=1, token=7, rank=0, kind=REPORT_NAMES[type(body)], body=fields)
    batch = ReportBatch(agent_id="a1", generation="g1", reports=(report,))
    received = unseal(ReportBatch, over_the_wire(batch))
    assert isinstance(received, ReportBatch)
    assert received.reports[0].decoded() == body


def test_a_batch_arrives_with_a_report_whose_body_does_not_fit() -> None:
    report = Report(number=1, token=7, rank=0, kind="samples", body={"samples": 3})
    batch = ReportBatch(agent_id="a1", generation="g1", reports=(report,))
    assert unseal(ReportBatch, over_the_wire(batch)) == batch
    envelope = {**over_the_wire(batch), "message": {**to_json(batch), "reports": [{"body": 3}]}}  # type: ignore[dict-item] # a table
    with pytest.raises(InvalidSpec, match=r"^reports\[0\]\.body: expected a table"):
        unseal(ReportBatch, envelope)


def test_a_message_of_another_version_is_refused() -> None:
    envelope = over_the_wire(COMMAND_EXAMPLES[0])
    envelope["version"] = WIRE_VERSION + 1
    with pytest.raises(InvalidSpec, match=r"^version: expected wire version"):
        unseal(StartRank, envelope)


def test_the_sender_of_another_version_is_known_by_its_name_and_nothing_else() -> None:
    envelope = {"version": 2, "message": {"agent_id": "a1", "what": "nobody knows"}}
    assert unknown_version_in(envelope) == UnknownVersion("a1", 2)
    assert unknown_version_in({**envelope, "version": WIRE_VERSION}) is None
    for broken in (None, 3, {}, {"version": 2}, {"version": 2, "message": []}):
        assert unknown_version_in(broken) is None
    for name in (None, 7, "", "no name", "x" * 65):
        assert unknown_version_in({"version": 2, "message": {"agent_id": name}}) is None
    for version in (None, "2", True, 2.0):
        assert unknown_version_in({**envelope, "version": version}) is None


@pytest.mark.parametrize("envelope", [None, [], "text", {}, {"version": WIRE_VERSION}])
def test_what_is_no_envelope_is_refused(envelope: object) -> None:
    with pytest.raises(InvalidSpec):
        unseal(StartRank, envelope)


def test_a_command_is_not_taken_for_another() -> None:
    with pytest.raises(InvalidSpec):
        unseal(Confirm, over_the_wire(StopAttempt(token=7, reason="cancelled")))


def test_a_report_of_an_unknown_kind_or_with_another_body_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"^kind: expected one of prepared"):
        Report(number=1, token=7, rank=0, kind="gossip", body={}).decoded()
    with pytest.raises(InvalidSpec, match=r"^samples\.samples"):
        Report(number=1, token=7, rank=0, kind="samples", body={"samples": 3}).decoded()


def test_a_job_that_cannot_be_is_refused_inside_a_command() -> None:
    envelope = over_the_wire(COMMAND_EXAMPLES[0])
    envelope["message"]["spec"]["world_size"] = 0
    with pytest.raises(InvalidSpec, match="world_size"):
        unseal(StartRank, envelope)


def test_what_was_not_measured_stays_missing_and_is_no_zero() -> None:
    received = from_json(Sample, json.loads(canonical_json(Sample(tick=3, cpu_ratio=0.0))))
    assert (received.cpu_ratio, received.machine_cpu_ratio) == (0.0, None)


@pytest.mark.parametrize("number", [-1, 2**31])
def test_a_number_that_the_store_could_not_count_is_refused(number: int) -> None:
    """One such report would otherwise fail the whole batch in the database, again and again."""
    bodies: list[tuple[type, str, dict[str, object]]] = [
        (Sample, "tick", {}),
        (StepTimes, "first_step", {"kind": "timed", "begun_s": 0, "times_s": []}),
        (
            Epoch,
            "epoch",
            {
                "train_s": 1,
                "step_count": 1,
                "train_loss": None,
                "val_loss": None,
                "val_accuracy_ratio": None,
            },
        ),
    ]
    for kind, field, others in bodies:
        assert from_json(kind, {**others, field: 2**31 - 1})
        with pytest.raises(InvalidSpec, match=f"^{field}: "):
            from_json(kind, {**others, field: number})


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("first_character", -1),
        ("first_character", LONGEST_LOG_CHARACTERS),
        ("text", "x" * (LONGEST_LOG_PART_CHARACTERS + 1)),
    ],
)
def test_a_log_without_end_is_refused(field: str, value: object) -> None:
    with pytest.raises(InvalidSpec, match=f"^{field}: ") as refused:
        from_json(LogPart, {"first_character": 0, "text": "", field: value})
    assert len(str(refused.value)) < 200


def test_every_message_can_be_decoded_from_its_type_alone() -> None:
    """A field of a type that the codec does not know would only show when it is first sent."""
    for kind in [*COMMANDS.values(), *REPORTS.values(), Heartbeat, ReportBatch]:
        with pytest.raises(InvalidSpec):
            from_json(kind, {"no such field": 1})
        assert dataclasses.is_dataclass(kind)


def test_machines_of_one_kind_share_a_fingerprint_although_no_two_are_equal() -> None:
    one = dataclasses.replace(BEAT.facts.hardware, memory_bytes=8 * 2**30 - 5_000_000)
    other = dataclasses.replace(
        BEAT.facts.hardware, memory_bytes=8 * 2**30 + 3_000, python_version="3.11.9"
    )
    assert one != other
    assert one.fingerprint == other.fingerprint


@pytest.mark.parametrize(
    "change",
    [
        *({"cpu_model": "another"}, {"core_count": 99}, {"tensorflow_version": "9.9"}),
        *({"accelerators": ("GPU",)}, {"accelerator_software": {"driver": "550"}}),
    ],
)
def test_another_kind_of_machine_has_another_fingerprint(change: dict[str, Any]) -> None:
    assert (
        dataclasses.replace(BEAT.facts.hardware, **change).fingerprint
        != BEAT.facts.hardware.fingerprint
    )


def test_a_machine_without_accelerators_keeps_the_fingerprint_of_its_earlier_measurements() -> None:
    hardware = Hardware(
        cpu_model="Big CPU",
        core_count=4,
        memory_bytes=16_000_000_000,
        kernel="6.1.0",
        tensorflow_version="2.21.0",
        python_version="3.11.7",
        benchfarm_version="0.1.0",
    )
    assert hardware.fingerprint.startswith("e6210ccafc00ce13")


def test_cores_of_a_quota_are_told_and_whole_ones_stay_whole_numbers() -> None:
    whole = dataclasses.replace(BEAT.facts.hardware, core_count=4.0)
    part = dataclasses.replace(BEAT.facts.hardware, core_count=1.5)
    assert '"core_count":4,' in canonical_json(whole)
    assert whole.fingerprint == dataclasses.replace(whole, core_count=4).fingerprint
    assert whole.fingerprint != part.fingerprint
    assert from_json(Hardware, json.loads(canonical_json(part))) == part


@pytest.mark.parametrize("agent_id", ["", "a b", "a\nb", "../x", "<b>", "a" * 65, ".a"])
def test_what_cannot_name_a_queue_or_a_page_names_no_agent(agent_id: str) -> None:
    with pytest.raises(InvalidSpec, match="agent_id"):
        dataclasses.replace(BEAT, agent_id=agent_id)
    report = Report(number=1, token=1, rank=0, kind="samples", body={})
    with pytest.raises(InvalidSpec, match="agent_id"):
        ReportBatch(agent_id=agent_id, generation="g", reports=(report,))


def test_a_batch_without_reports_is_none() -> None:
    with pytest.raises(InvalidSpec, match="reports: expected at least one"):
        ReportBatch(agent_id="a", generation="g", reports=())


@pytest.mark.parametrize("change", [{"rank": -1}, {"rank": 2**31}, {"number": 0}])
def test_a_report_the_store_could_not_count_is_refused(change: dict[str, int]) -> None:
    fields: dict[str, Any] = {"number": 1, "token": 1, "rank": 0, "kind": "samples", "body": {}}
    with pytest.raises(InvalidSpec):
        Report(**{**fields, **change})
