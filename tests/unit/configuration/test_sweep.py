import copy
import math
from collections.abc import Mapping
from typing import Any

import pytest

from farm import registry
from farm.configuration.axes import AXES_BY_NAME
from farm.configuration.catalogue import (
    GANG_AXES,
    SERVER_AXES,
    TORCH,
    TRAINING_AXES,
    Catalogue,
    DatasetFacts,
    ModelFacts,
    StrategyFacts,
)
from farm.configuration.expansion import Expansion, expand
from farm.configuration.spec import (
    BatchSplit,
    JobSpec,
    NetworkProfile,
    OperatorPlacement,
    ServerPlacement,
    TrainingPass,
)
from farm.configuration.sweep import SweepSpec, parse_sweep
from farm.errors import InvalidSpec

CASE: dict[str, Any] = {
    "model": "small_cnn",
    "dataset": "digits",
    "strategy": "single",
    "world_size": 1,
    "global_batch_size": 64,
}
RING = {"strategy": "ring", "world_size": 2}


def strategy(name: str, *, framework: str = "tensorflow", **facts: Any) -> StrategyFacts:
    return StrategyFacts(name=name, summary="", framework=framework, **facts)


CATALOGUE = Catalogue(
    models={name: ModelFacts(name=name, summary="") for name in ("small_cnn", "mlp")},
    datasets={
        "digits": DatasetFacts(
            name="digits",
            summary="",
            train_examples_count=1000,
            test_examples_count=100,
            example_shape=(8, 8, 1),
            class_count=10,
            is_synthetic=False,
        )
    },
    strategies={
        "single": strategy("single", max_world_size=1, axes=("compile",), compiles_by_xla=True),
        "pair": strategy("pair", min_world_size=2, max_world_size=3, axes=GANG_AXES),
        "ring": strategy("ring", min_world_size=2, axes=(*GANG_AXES, "compile")),
        "servers": strategy("servers", axes=(*GANG_AXES, *SERVER_AXES, "compile")),
        "async_servers": strategy(
            "async_servers", axes=("ranks_per_agent", *SERVER_AXES), is_synchronous=False
        ),
        "replicas": strategy("replicas", max_world_size=1, axes=("replicas_per_rank",)),
        "torch_any": strategy(
            "torch_any", framework="torch", axes=(*GANG_AXES, *TRAINING_AXES), has_loader=True
        ),
        "averaging": strategy(
            "averaging",
            min_world_size=2,
            is_synchronous=False,
            axes=("ranks_per_agent", "steps_between_averages"),
        ),
    },
)


def sweep(*cases: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """A sweep file's values; each case changes some fields of CASE."""
    return {"name": "a sweep", "case": [{**CASE, **case} for case in cases or ({},)], **fields}


def parsed(*cases: Mapping[str, Any], **fields: Any) -> SweepSpec:
    return parse_sweep(sweep(*cases, **fields))


def expanded(*cases: Mapping[str, Any], **fields: Any) -> Expansion:
    return expand(parsed(*cases, **fields), CATALOGUE)


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in CASE.items() if name != key}


def test_what_is_left_out_has_the_documented_default() -> None:
    only = expanded().jobs[0]
    assert only == JobSpec(
        model="small_cnn",
        dataset="digits",
        strategy="single",
        world_size=1,
        global_batch_size=64,
        steps=30,
        warmup_step_count=5,
    )


def test_a_single_value_counts_as_a_list_of_one() -> None:
    assert parsed({"world_size": 1}) == parsed({"world_size": [1]})


def test_milliseconds_percent_and_megabits_become_base_units() -> None:
    case = {
        **RING,
        "one_way_delay_ms": 20,
        "jitter_ms": 2.5,
        "packet_loss_percent": 1,
        "bandwidth_mbit_per_s": 100,
    }
    assert expanded(case).jobs[0].network == NetworkProfile(
        one_way_delay_s=0.02,
        jitter_s=0.0025,
        packet_loss_ratio=0.01,
        bandwidth_bytes_per_s=12_500_000.0,
    )


@pytest.mark.parametrize("delay", [0, 0.0, -0.0])
def test_a_network_without_any_wish_is_the_untouched_one(delay: float) -> None:
    assert expanded({**RING, "one_way_delay_ms": delay}).jobs[0].network is None


def test_minus_zero_does_not_make_another_cell() -> None:
    jobs = [
        expanded({**RING, "packet_loss_percent": 1, "one_way_delay_ms": delay}).jobs[0]
        for delay in (0.0, -0.0)
    ]
    assert jobs[0].cell_hash == jobs[1].cell_hash


def test_an_emulator_is_asked_for_where_there_is_something_to_emulate() -> None:
    case = {**RING, "one_way_delay_ms": [0, 5], "emulator": "tcp_proxy"}
    networks = {(job.network is None, job.emulator) for job in expanded(case).jobs}
    assert networks == {(True, None), (False, "tcp_proxy")}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"one_way_delay_ms": 5, "jitter_ms": 6},
            "case[0].jitter_ms: expected at most one_way_delay_ms, 5, got 6.0",
        ),
        (
            {"bandwidth_mbit_per_s": 0.01},
            "case[0].bandwidth_mbit_per_s: expected at least 0.012, a packet a second, got 0.01",
        ),
        (
            {"packet_loss_percent": 1, "emulator": "tcp_proxy"},
            "case[0].packet_loss_percent: expected 0 for the emulator 'tcp_proxy', got 1.0",
        ),
        (
            {"one_way_delay_ms": 5, "jitter_ms": 1, "emulator": "vde_link"},
            "case[0].jitter_ms: expected 0 for the emulator 'vde_link', got 1.0",
        ),
        (
            {"bandwidth_mbit_per_s": 101, "emulator": "vde_link"},
            "case[0].bandwidth_mbit_per_s: expected at most 100 for the emulator 'vde_link', "
            "got 101.0",
        ),
        (
            {"one_way_delay_ms": 5, "emulator": "netem"},
            "case[0].emulator: expected one of tc_netem, tcp_proxy, vde_link "
            "(did you mean 'tc_netem'?), got 'netem'",
        ),
    ],
)
def test_a_network_that_cannot_be_made_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        expanded({**RING, **fields})
    assert str(refused.value) == message


def test_an_impossible_network_is_left_out_alone() -> None:
    case = {**RING, "one_way_delay_ms": [0, 5], "jitter_ms": [0, 5]}
    expansion = expanded(case, skip_impossible=True)
    assert len(expansion.jobs) == 3
    assert [item.cell.rpartition(" ")[2] for item in expansion.impossible] == ["jitter_ms=5"]


def test_any_loss_below_everything_is_a_ratio_below_one() -> None:
    almost = math.nextafter(100, 0)
    network = expanded({**RING, "packet_loss_percent": almost}).jobs[0].network
    assert network is not None
    assert network.packet_loss_ratio < 1


def test_epochs_replace_steps() -> None:
    only = expanded({"epochs": 3}).jobs[0]
    assert (only.steps, only.epochs) == (None, 3)


MALFORMED: dict[str, tuple[object, str]] = {
    "not a table": ([], "sweep: expected a table, got []"),
    "no name": (
        {"case": [CASE]},
        "name: expected a value: this field is required, got None",
    ),
    "an empty name": (sweep(name=" "), "name: expected a text of printable characters, got ' '"),
    "a name with a line break": (
        sweep(name="a\nb"),
        "name: expected a text of printable characters, got 'a\\nb'",
    ),
    "a name without end": (
        sweep(name="x" * 201),
        f"name: expected at most 200 characters, got '{'x' * 76}...",
    ),
    "no case": ({"name": "x"}, "case: expected at least one [[case]] table, got None"),
    "an empty list of cases": (
        {"name": "x", "case": []},
        "case: expected at least one [[case]] table, got []",
    ),
    "one case as a table": (
        {"name": "x", "case": {}},
        "case: expected at least one [[case]] table, got {}",
    ),
    "a case that is none": ({"name": "x", "case": [3]}, "case[0]: expected a table, got 3"),
    "zero repetitions": (
        sweep(repetitions=0),
        'repetitions: expected a whole number from 1 to 2147483647 or "auto", got 0',
    ),
    "a number for a flag": (sweep(repeat=1), "repeat: expected true or false, got 1"),
    "a flag for a number": (
        sweep({"world_size": True}),
        "case[0].world_size: expected a whole number from 1 to 4096, got True",
    ),
    "a text for a number": (
        sweep({"world_size": [1, "2"]}),
        "case[0].world_size[1]: expected a whole number from 1 to 4096, got '2'",
    ),
    "a fraction for a count": (
        sweep({"global_batch_size": 64.5}),
        "case[0].global_batch_size: expected a whole number from 1 to 100000000, got 64.5",
    ),
    "a list in a list": (
        sweep({"world_size": [[1]]}),
        "case[0].world_size[0]: expected a whole number from 1 to 4096, got [1]",
    ),
    "an empty list": (
        sweep({"model": []}),
        "case[0].model: expected at least one value, got []",
    ),
    "a missing axis": (
        {"name": "x", "case": [without("dataset")]},
        "case[0].dataset: expected a value: this field is required, got None",
    ),
    "a null axis": (
        sweep({"one_way_delay_ms": None}),
        "case[0].one_way_delay_ms: expected a number of milliseconds from 0 to 10000, got None",
    ),
    "a negative delay in the second case": (
        sweep({}, {"one_way_delay_ms": [0, -1]}),
        "case[1].one_way_delay_ms[1]: expected a number of milliseconds from 0 to 10000, got -1",
    ),
    "no number": (
        sweep({"jitter_ms": float("nan")}),
        "case[0].jitter_ms: expected a number of milliseconds from 0 to 10000, got nan",
    ),
    "loss of everything": (
        sweep({"packet_loss_percent": 100}),
        "case[0].packet_loss_percent: expected a percentage from 0 to below 100, got 100",
    ),
    "no bandwidth": (
        sweep({"bandwidth_mbit_per_s": 0}),
        "case[0].bandwidth_mbit_per_s: expected a number of Mbit/s from 0.001 to 1000000, got 0",
    ),
    "endless bandwidth": (
        sweep({"bandwidth_mbit_per_s": float("inf")}),
        "case[0].bandwidth_mbit_per_s: expected a number of Mbit/s from 0.001 to 1000000, got inf",
    ),
    "an unknown pass": (
        sweep({"pass": "backward"}),
        "case[0].pass: expected 'forward' or 'forward_backward', got 'backward'",
    ),
    "steps and epochs": (
        sweep({"steps": 3, "epochs": 2}),
        "case[0].epochs: expected either steps or epochs, not both, got 2",
    ),
    "a list of steps": (
        sweep({"steps": [1, 2]}),
        'case[0].steps: expected a whole number from 1 to 10000000 or "all", got [1, 2]',
    ),
    "a seed below zero": (
        sweep({"seed": -1}),
        "case[0].seed: expected a whole number from 0 to 2147483647, got -1",
    ),
    "labels that are no texts": (
        sweep({"labels": {"zone": 1}}),
        "case[0].labels.zone: expected a text of printable characters, got 1",
    ),
    "labels that are no table": (
        sweep({"labels": ["zone"]}),
        "case[0].labels: expected a table of texts, got ['zone']",
    ),
    "more labels than a job may store": (
        sweep({"labels": {f"label{i}": "1" for i in range(21)}}),
        "case[0].labels: expected at most 20 labels, got 21",
    ),
    "labels that are too long together": (
        sweep({"labels": {f"{i:0100}": "v" * 150 for i in range(5)}}),
        "case[0].labels: expected at most 1000 characters, got 1250",
    ),
    "no time at all": (
        sweep({"time_limit_s": 0}),
        "case[0].time_limit_s: expected a number of seconds from 1 to 604800, got 0",
    ),
}


@pytest.mark.parametrize(("data", "message"), MALFORMED.values(), ids=list(MALFORMED))
def test_a_malformed_sweep_names_field_value_and_expectation(data: object, message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_sweep(data)
    assert str(refused.value) == message


def test_a_misspelt_field_is_answered_with_the_one_meant() -> None:
    with pytest.raises(InvalidSpec, match=r"^case\[0\]\.wrld_size: .*did you mean 'world_size'"):
        parsed({"wrld_size": 2})
    with pytest.raises(InvalidSpec, match=r"^repetition: .*did you mean 'repetitions'"):
        parsed(repetition=2)


def test_a_field_that_is_no_word_is_shown_quoted_and_on_one_line() -> None:
    for key in ("", "a\nb"):
        with pytest.raises(InvalidSpec) as refused:
            parsed(**{key: 1})
        assert str(refused.value).startswith(f"{key!r}: expected one of the fields")


def test_a_number_beyond_printing_is_refused_like_any_other() -> None:
    with pytest.raises(InvalidSpec, match="got an unprintable int"):
        parsed({"steps": 1 << 40_000})


def test_jobs_are_the_cross_product() -> None:
    jobs = expanded({**RING, "world_size": [4, 2], "global_batch_size": [64, 32]}).jobs
    assert sorted((job.world_size, job.global_batch_size) for job in jobs) == [
        (2, 32),
        (2, 64),
        (4, 32),
        (4, 64),
    ]


def test_every_cell_comes_once_before_any_comes_again_and_each_repetition_has_its_seed() -> None:
    jobs = expanded({"global_batch_size": [64, 32], "seed": 7}, repetitions=2).jobs
    first, second = jobs[:2], jobs[2:]
    assert {(job.global_batch_size, job.repetition, job.seed) for job in first} == {
        (64, 0, 7),
        (32, 0, 7),
    }
    assert {(job.global_batch_size, job.repetition, job.seed) for job in second} == {
        (64, 1, 8),
        (32, 1, 8),
    }


def test_every_round_has_the_cells_in_an_order_of_its_own() -> None:
    sizes = list(range(1, 21))
    jobs = expanded({"global_batch_size": sizes}, repetitions=4).jobs
    rounds = [[job.global_batch_size for job in jobs[i : i + 20]] for i in range(0, 80, 20)]
    assert all(sorted(order) == sizes for order in rounds)
    assert len({tuple(order) for order in [*rounds, sizes]}) == 5


def test_a_strategy_without_network_has_no_delay_and_no_duplicates() -> None:
    expansion = expanded(
        {"one_way_delay_ms": [0, 10, 20], "bandwidth_mbit_per_s": [10, 100], "server_count": [0, 2]}
    )
    assert [job.network for job in expansion.jobs] == [None]
    assert expansion.duplicate_count == 11


def test_the_ranks_of_one_agent_have_no_network_and_no_duplicates() -> None:
    case = {**RING, "world_size": 4, "ranks_per_agent": [1, 2, 4], "one_way_delay_ms": [0, 10]}
    expansion = expanded(case)
    found = {(job.ranks_per_agent, job.network is None) for job in expansion.jobs}
    assert found == {(1, True), (1, False), (2, True), (2, False), (4, True)}
    assert expansion.duplicate_count == 1


def test_servers_beside_all_ranks_have_no_network_and_those_apart_have_one() -> None:
    several = {"strategy": "servers", "world_size": 2, "ranks_per_agent": 2, "network": "fast"}
    placed = {**several, "server_placement": ["collocated", "apart"], "one_way_delay_ms": [0, 10]}
    found = {
        (job.server_placement.value, job.interface, job.network is None)
        for job in expanded(placed).jobs
    }
    assert found == {
        ("collocated", None, True),
        ("apart", "fast", True),
        ("apart", "fast", False),
    }


def test_ranks_per_agent_are_for_every_strategy_of_several_ranks() -> None:
    assert [job.ranks_per_agent for job in expanded({"ranks_per_agent": [1, 2]}).jobs] == [1]
    for strategy in ("averaging", "async_servers"):
        case = {**RING, "strategy": strategy, "ranks_per_agent": [1, 2]}
        assert sorted(job.ranks_per_agent for job in expanded(case).jobs) == [1, 2]


def test_more_step_times_than_are_read_at_the_end_of_a_job_are_refused_before() -> None:
    own_pace = {"strategy": "async_servers", "world_size": 4}
    assert len(expanded({**own_pace, "steps": 6_250_000}).jobs) == 1
    with pytest.raises(InvalidSpec, match=r"steps: expected at most 6250000 .* each of 4 ranks"):
        expanded({**own_pace, "steps": 6_250_001})
    assert len(expanded({**RING, "world_size": 4, "steps": 10_000_000}).jobs) == 1
    # Of 1000 examples an epoch has 16 steps.
    assert len(expanded({"epochs": 250_000}).jobs) == 1
    with pytest.raises(InvalidSpec, match=r"epochs: .* of which these have 4000016, got 250001"):
        expanded({"epochs": 250_001})


def test_gpus_are_asked_for_by_device_and_of_those_of_a_rank_only_scripts_choose_how_many() -> None:
    jobs = expanded({**RING, "device": ["auto", "cpu", "gpu"], "gpus_per_rank": [1, 2]}).jobs
    gpu_counts = {job.device.value: job.gpus_per_rank for job in jobs}
    assert gpu_counts == {"auto": None, "cpu": 0, "gpu": 1}
    assert len(jobs) == 3


def test_on_gpus_hard_placement_is_refused_which_is_all_on_the_cpu() -> None:
    with pytest.raises(InvalidSpec, match="device: expected auto or cpu with placement 'hard'"):
        expanded({"device": "gpu", "placement": "hard"})
    assert len(expanded({"device": "cpu", "placement": "hard"}).jobs) == 1


def test_a_world_size_that_agents_cannot_share_evenly_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"world_size: expected a multiple of ranks_per_agent, 2"):
        expanded({**RING, "world_size": 3, "ranks_per_agent": 2})


def test_servers_are_counted_only_where_there_are_any() -> None:
    assert [job.server_count for job in expanded({**RING, "server_count": [1, 2]}).jobs] == [0]
    jobs = expanded({"strategy": "servers", "server_count": [1, 2]}).jobs
    assert {job.server_count for job in jobs} == {1, 2}


def test_one_rank_with_a_server_apart_has_a_network() -> None:
    case = {"strategy": "servers", "server_placement": "apart", "one_way_delay_ms": 5}
    assert expanded(case).jobs[0].network == NetworkProfile(one_way_delay_s=0.005)


def test_equal_jobs_of_two_cases_are_one() -> None:
    expansion = expanded({"global_batch_size": [32, 64]}, {"global_batch_size": [64, 128]})
    assert sorted(job.global_batch_size for job in expansion.jobs) == [32, 64, 128]
    assert expansion.duplicate_count == 1


def test_cases_that_differ_in_seed_labels_or_limit_are_different_jobs() -> None:
    cases: list[dict[str, Any]] = [
        {},
        {"seed": 1},
        {"labels": {"zone": "1"}},
        {"time_limit_s": 60},
        {"steps": 11},
    ]
    assert len(expanded(*cases).jobs) == len(cases)


def test_both_passes_may_be_asked_for() -> None:
    jobs = expanded({"pass": ["forward", "forward_backward"]}).jobs
    assert {job.training_pass for job in jobs} == set(TrainingPass)


def test_a_forward_pass_is_measured_once_whatever_would_update_the_weights() -> None:
    updates = {
        "optimizer": ["sgd", "adamw"],
        "gradient_accumulation_steps": [1, 4],
        "activation_checkpointing": ["off", "on"],
    }
    case = {"strategy": "torch_any", "precision": ["float32", "bfloat16"], **updates}
    found = expanded({**case, "pass": "forward"})
    assert [job.axes for job in found.jobs if job.axes] == [{"precision": "bfloat16"}]
    assert (len(found.jobs), found.duplicate_count) == (2, 14)
    assert len(expanded(case).jobs) == 16


IMPOSSIBLE = {
    "single with 4 ranks": (
        {"world_size": 4},
        "world_size: expected 1 for strategy 'single', got 4",
    ),
    "too few ranks": (
        {**RING, "world_size": 1},
        "world_size: expected at least 2 for strategy 'ring', got 1",
    ),
    "too many ranks": (
        {"strategy": "pair", "world_size": 4},
        "world_size: expected 2 to 3 for strategy 'pair', got 4",
    ),
    "no server": (
        {"strategy": "servers", "server_count": 0},
        "server_count: expected at least 1 for strategy 'servers', got 0",
    ),
    "fewer examples than replicas": (
        {**RING, "world_size": 65},
        "global_batch_size: expected at least 65, one example for each replica, got 64",
    ),
    "a batch larger than the data set": (
        {"global_batch_size": 1001},
        "global_batch_size: expected at most 1000, the examples of 'digits', "
        "without repeat = true, got 1001",
    ),
    "an unknown model": (
        {"model": "smal_cnn"},
        "model: expected one of small_cnn, mlp (did you mean 'small_cnn'?), got 'smal_cnn'",
    ),
    "an unknown data set": ({"dataset": "zzz"}, "dataset: expected one of digits, got 'zzz'"),
    "an unknown strategy": (
        {"strategy": "rings"},
        "strategy: expected one of single, pair, ring, servers, async_servers, replicas, "
        "torch_any, averaging (did you mean 'ring'?), got 'rings'",
    ),
}


@pytest.mark.parametrize(("case", "message"), IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_an_impossible_cell_refuses_the_whole_sweep(case: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        expanded({}, case)
    assert str(refused.value) == f"case[1].{message}"


@pytest.mark.parametrize(("case", "message"), IMPOSSIBLE.values(), ids=list(IMPOSSIBLE))
def test_skip_impossible_lists_what_it_leaves_out(case: dict[str, Any], message: str) -> None:
    expansion = expanded({}, case, skip_impossible=True)
    assert len(expansion.jobs) == 1
    assert [cell.reason for cell in expansion.impossible] == [message]


def test_an_impossible_cell_is_listed_once_however_often_it_repeats() -> None:
    case = {"world_size": [1, 4], "one_way_delay_ms": [0, 10]}
    expansion = expanded(case, skip_impossible=True, repetitions=3)
    assert [cell.cell for cell in expansion.impossible] == [
        "case[0]: model=small_cnn dataset=digits strategy=single world_size=4 global_batch_size=64"
    ]


def test_a_sweep_that_skips_everything_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="a cell that can run; all 2 cannot"):
        expanded({"world_size": [3, 4]}, skip_impossible=True)


def test_repeat_allows_a_batch_larger_than_the_data_set_and_marks_only_that_job() -> None:
    jobs = expanded({"global_batch_size": [1000, 1001]}, repeat=True).jobs
    assert {job.global_batch_size: job.repeat for job in jobs} == {1000: False, 1001: True}


def test_the_number_of_jobs_is_limited_before_any_is_built() -> None:
    with pytest.raises(
        InvalidSpec, match=r"^sweep: expected at most 100000 jobs in one sweep, got 1000000000$"
    ):
        expanded(repetitions=1_000_000_000)
    wide = {"global_batch_size": list(range(1, 1001)), "one_way_delay_ms": list(range(1000))}
    with pytest.raises(InvalidSpec, match="at most 100000 jobs in one sweep, got 2000000"):
        expanded(wide, wide)


def test_the_limit_itself_is_allowed() -> None:
    spec = parsed({"global_batch_size": [32, 64]}, repetitions=2)
    assert len(expand(spec, CATALOGUE, max_jobs=4).jobs) == 4
    with pytest.raises(InvalidSpec, match="at most 3 jobs"):
        expand(spec, CATALOGUE, max_jobs=3)


def test_a_job_may_store_no_more_text_than_some_kilobytes() -> None:
    expected = r"^case\[1\]: expected texts of at most 4096 bytes in one job, got '4"
    with pytest.raises(InvalidSpec, match=expected):
        expanded({}, {"model": ["mlp", "\N{GRINNING FACE}" * 1000], "labels": {"zone": "z" * 100}})


def test_equal_values_of_an_axis_are_one_and_keep_their_order() -> None:
    case = parsed({"global_batch_size": [64, 32, 64.0, 16, 32]}).cases[0]
    assert case.values["global_batch_size"] == (64, 32, 16)


def test_seeds_that_would_overflow_are_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"^case\[0\]\.seed: expected at most 2147483646"):
        expanded({"seed": 2**31 - 1}, repetitions=2)


def test_parsing_does_not_change_its_input() -> None:
    data = sweep({"labels": {"zone": "1"}})
    before = copy.deepcopy(data)
    expand(parse_sweep(data), CATALOGUE)
    assert data == before


AXES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one server unless told": ({"strategy": "servers"}, {"server_count": 1}),
    "servers apart": (
        {"strategy": "servers", "server_count": 2, "server_placement": "apart"},
        {"server_count": 2, "server_placement": ServerPlacement.APART},
    ),
    "no servers elsewhere": (
        {**RING, "server_count": 2, "server_placement": "apart"},
        {"server_count": 0, "server_placement": ServerPlacement.COLLOCATED},
    ),
    "two replicas unless told": ({"strategy": "replicas"}, {"replicas_per_rank": 2}),
    "no replicas elsewhere": ({**RING, "replicas_per_rank": 4}, {"replicas_per_rank": 1}),
    "eight steps unless told": (
        {"strategy": "averaging", "world_size": 2},
        {"steps_between_averages": 8},
    ),
    "no averages elsewhere": ({**RING, "steps_between_averages": 3}, {"steps_between_averages": 1}),
    "by speed": ({**RING, "batch_split": "by_speed"}, {"batch_split": BatchSplit.BY_SPEED}),
    "one rank takes all": ({"batch_split": "by_speed"}, {"batch_split": BatchSplit.EVEN}),
    "each at its own pace": (
        {"strategy": "averaging", "world_size": 2, "batch_split": "by_speed"},
        {"batch_split": BatchSplit.EVEN},
    ),
    "a network by name": ({**RING, "network": "infiniband"}, {"interface": "infiniband"}),
    "nobody to talk to": ({"network": "infiniband"}, {"interface": None}),
    "a worker and a server apart": (
        {"strategy": "servers", "server_placement": "apart", "network": "infiniband"},
        {"interface": "infiniband"},
    ),
    "a worker and its server": (
        {"strategy": "servers", "network": "infiniband"},
        {"interface": None},
    ),
    "on the CPU": ({"placement": "hard"}, {"placement": OperatorPlacement.HARD}),
}


@pytest.mark.parametrize(("case", "expected"), AXES.values(), ids=list(AXES))
def test_an_axis_applies_where_its_strategy_uses_it(
    case: dict[str, Any], expected: dict[str, Any]
) -> None:
    (job,) = expanded(case).jobs
    assert {name: getattr(job, name) for name in expected} == expected


@pytest.mark.parametrize("name", ["activation_checkpointing", "compile"])
def test_what_needs_a_whole_model_applies_where_a_rank_has_it(name: str) -> None:
    of_torch = [s for s in registry.catalogue().strategies.values() if s.framework == TORCH]
    found = {facts.name for facts in of_torch if AXES_BY_NAME[name].applies(facts, 2)}
    assert found == {facts.name for facts in of_torch if not facts.divides_model}
    assert {"torch_ddp"} <= found < {facts.name for facts in of_torch}


def test_a_framework_is_compiled_by_its_own_compiler() -> None:
    every = ["none", "torch_compile", "xla"]
    expansion = expanded({"strategy": ["single", "torch_any"], "compile": every})
    found = {(job.strategy, job.axes.get("compile")) for job in expansion.jobs}
    assert found == {
        ("single", None),
        ("single", "xla"),
        ("torch_any", None),
        ("torch_any", "torch_compile"),
    }


def test_data_workers_mean_nothing_for_examples_in_memory() -> None:
    both = {"strategy": "torch_any", "input_pipeline": ["memory", "loader"], "data_workers": [0, 2]}
    found = [job.axes for job in expanded(both).jobs]
    assert sorted(found, key=len) == [
        {},
        {"input_pipeline": "loader"},
        {"input_pipeline": "loader", "data_workers": 2},
    ]


def test_axes_that_do_not_apply_leave_no_duplicates() -> None:
    expansion = expanded({"server_count": [1, 2], "replicas_per_rank": [1, 2]})
    assert len(expansion.jobs) == 1
    assert expansion.duplicate_count == 3


@pytest.mark.parametrize(
    ("case", "problem"),
    [
        (
            {"strategy": "servers", "server_count": 0},
            "case[0].server_count: expected at least 1 for strategy 'servers', got 0",
        ),
        (
            {"strategy": "replicas", "replicas_per_rank": 65},
            "case[0].replicas_per_rank: expected a whole number from 1 to 64, got 65",
        ),
        (
            {"strategy": "replicas", "replicas_per_rank": 4, "global_batch_size": 3},
            "case[0].global_batch_size: expected at least 4, one example for each replica, got 3",
        ),
        (
            {"strategy": "torch_any", "global_batch_size": 9, "gradient_accumulation_steps": 10},
            "case[0].gradient_accumulation_steps: expected at most 9, the examples of a rank in "
            "batch 9, got 10",
        ),
        (
            {"strategy": "torch_any", "learning_rate": 501, "lr_scaling": "linear"},
            "case[0].learning_rate: expected at most 500 with lr_scaling 'linear' at batch 64, "
            "which makes it 2 times as high, got 501",
        ),
        (
            {"strategy": "torch_any", "lr_warmup_steps": -1},
            "case[0].lr_warmup_steps: expected a whole number from 0 to 10000000, got -1",
        ),
        (
            {"strategy": "torch_any", "gradient_bucket_mib": 0},
            "case[0].gradient_bucket_mib: expected a number of MiB from 0.001 to 100000, got 0",
        ),
        (
            {"strategy": "averaging", "world_size": 2, "steps": 7},
            "case[0].steps_between_averages: expected at most 7, the timed steps of the job, or "
            "ranks would not average, got 8",
        ),
        (
            # Of 1000 examples: four steps an epoch, the last of them partial.
            {
                **{"strategy": "averaging", "world_size": 2, "global_batch_size": 300},
                **{"epochs": 2, "steps_between_averages": 9},
            },
            "case[0].steps_between_averages: expected at most 8, the timed steps",
        ),
        (
            {
                "strategy": "torch_any",
                "model": "file:own.py",
                "activation_checkpointing": "on",
            },
            "case[0].activation_checkpointing: expected 'off' for a model of your own, whose "
            "blocks are not known, got 'on'",
        ),
        (
            {"strategy": "torch_any", "model": "file:own.py", "compile": "torch_compile"},
            "case[0].compile: expected 'none' for a model of your own, whose layers are Keras's",
        ),
        (
            {
                "strategy": "torch_any",
                "activation_checkpointing": "on",
                "compile": "torch_compile",
            },
            "case[0].activation_checkpointing: expected 'off' with compile 'torch_compile'",
        ),
        (
            {"strategy": "servers", "compile": "xla"},
            "case[0].compile: expected 'none' for strategy 'servers', which XLA does not compile,"
            " got 'xla'",
        ),
        (
            {"strategy": "ring", "world_size": 2, "input_pipeline": "loader"},
            "case[0].input_pipeline: expected 'memory' for strategy 'ring', which has no loader,"
            " got 'loader'",
        ),
        (
            {"strategy": "torch_any", "input_pipeline": "loader", "data_workers": 65},
            "case[0].data_workers: expected a whole number from 0 to 64, got 65",
        ),
        ({"batch_split": "fair"}, "case[0].batch_split: expected 'even' or 'by_speed', got 'fair'"),
        ({"network": "a b"}, "case[0].network: expected the name of a network of the agents"),
    ],
)
def test_an_axis_with_a_value_without_sense_is_refused(case: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        expanded(case)
    assert str(refused.value).startswith(problem)


def test_a_time_limit_keeps_all_its_digits() -> None:
    assert expanded({**RING, "time_limit_s": 1234.56789012345}).jobs[0].time_limit_s == (
        1234.56789012345
    )


def test_what_no_emulator_can_tell_from_0_is_0() -> None:
    case = {
        **RING,
        "one_way_delay_ms": [0, 1e-320, 1e-9],
        "packet_loss_percent": [0, 1e-300],
    }
    assert [job.network for job in expanded(case).jobs] == [None]
    shortest = {**case, "one_way_delay_ms": 1e-6, "packet_loss_percent": 1e-6}
    [job] = expanded(shortest).jobs
    assert job.network == NetworkProfile(one_way_delay_s=1e-9, packet_loss_ratio=1e-8)
