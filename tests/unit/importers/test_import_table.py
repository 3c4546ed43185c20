"""A table of anybody's measurements: what is taken, and what is refused by row and column."""

from __future__ import annotations

import pytest

from farm.configuration.spec import TrainingPass
from farm.errors import InvalidSpec
from farm.exporting import MEASUREMENTS
from farm.importers import sheet
from farm.importers.columns import PASSED_ALONG
from farm.importers.table import COLUMNS, REQUIRED, check_table, read_table
from farm.measuring.imported import ImportedMeasurement

HEADER = "world_size,global_batch_size,step_time_s"


def read(*lines: str, ignored: tuple[str, ...] = ()) -> list[ImportedMeasurement]:
    return list(read_table("\n".join(lines).encode(), ignored=ignored).measurements)


def refusal(*lines: str) -> str:
    with pytest.raises(InvalidSpec) as refused:
        read(*lines)
    message = str(refused.value)
    assert "\n" not in message
    return message


def keys(*lines: str) -> list[str]:
    return [m.source_key for m in read(*lines)]


# --- what is taken ----------------------------------------------------------------------------


def test_every_column_that_is_exported_is_known() -> None:
    assert {*COLUMNS, *PASSED_ALONG} == set(MEASUREMENTS)
    assert not set(COLUMNS) & set(PASSED_ALONG)
    assert set(REQUIRED) <= set(MEASUREMENTS)


def test_what_an_export_tells_of_exchanges_is_left_out_of_what_is_read() -> None:
    header = f"{HEADER},idle_ratio,staleness_max"
    assert keys(header, "2,64,0.5,0.25,3") == keys(HEADER, "2,64,0.5")


@pytest.mark.parametrize(
    ("column", "text"),
    [
        ("idle_ratio", "1.5"),
        ("job_id", "-1"),
        ("seed", "2.5"),
        ("cpu_ratio", "half"),
        ("throughput_examples_per_s", "-3"),
        ("resident_bytes", "1e3x"),
        ("flags", "disturbed"),
        ("flags", '"[{""kind"": ""gossip"", ""message"": ""x""}]"'),
        ("flags", '"[{""kind"": ""steal""}]"'),
        ("flags", '"[{""kind"": ""impossible"", ""message"": ""x""}]"'),
        ("flags", '"[{""kind"": ""contradictory"", ""message"": ""x""}]"'),
        ("flags", '"[{""kind"": ""steal"", ""message"": ""x"", ""value"": -5}]"'),
        ("flags", '"[{""kind"": ""steal"", ""message"": ""x"", ""value"": 1e300}]"'),
        ("flags", '"[{""kind"": ""steal"", ""message"": ""x"", ""value"": ""much""}]"'),
    ],
)
def test_what_an_export_tells_besides_is_checked(column: str, text: str) -> None:
    assert f"row 2, column {column}: expected" in refusal(f"{HEADER},{column}", f"2,64,0.5,{text}")


def test_what_disturbed_a_measurement_is_kept_and_makes_it_no_other_one() -> None:
    flags = '"[{""kind"": ""foreign_load"", ""message"": ""54 % by others"", ""value"": 0.54}]"'
    [row] = read(f"{HEADER},flags", f"2,64,0.5,{flags}")
    [flag] = row.flags
    assert (flag.kind.value, flag.message, flag.value) == ("foreign_load", "54 % by others", 0.54)
    assert flag.is_of_a_disturbance
    assert keys(f"{HEADER},flags", f"2,64,0.5,{flags}") == keys(HEADER, "2,64,0.5")
    assert read(f"{HEADER},flags", "2,64,0.5,[]")[0].flags == ()


def test_the_required_columns_are_enough() -> None:
    [row] = read(HEADER, "2,64,0.5")
    assert (row["world_size"], row["global_batch_size"], row["step_time_s"]) == (2, 64, 0.5)
    assert (row.status, row["training_pass"], row["server_count"]) == (
        "ok",
        TrainingPass.FORWARD_BACKWARD.value,
        0,
    )
    assert (row["one_way_delay_s"], row["packet_loss_ratio"]) == (0.0, 0.0)
    assert (row["bandwidth_bytes_per_s"], row["model"], row["accuracy"]) == (None, None, None)
    assert row.row_number == 2


def test_units_become_base_units() -> None:
    columns = "one_way_delay_ms,jitter_ms,bandwidth_mbit_per_s,packet_loss_percent,pass"
    [row] = read(f"{HEADER},{columns}", "2,64,0.5,20,1.5,100,0.5,forward")
    assert (row["one_way_delay_s"], row["jitter_s"]) == (0.02, 0.0015)
    assert (row["bandwidth_bytes_per_s"], row["packet_loss_ratio"]) == (12_500_000.0, 0.005)
    assert row["training_pass"] == TrainingPass.FORWARD.value


def test_names_are_free_text_and_an_empty_cell_says_nothing() -> None:
    [row] = read(f"{HEADER},model,strategy,network", '2,64,1,"my, ""net""",Ring (NCCL),')
    assert (row["model"], row["strategy"], row["network"]) == ('my, "net"', "Ring (NCCL)", None)


def test_a_failed_cell_needs_no_time() -> None:
    [row] = read(f"{HEADER},status", "1,64000,,Out_Of_Memory")
    assert (row.status, row["step_time_s"]) == ("out_of_memory", None)
    assert row.throughput_examples_per_s is None


def test_a_step_time_comes_from_the_epoch_where_its_steps_are_known() -> None:
    header = "world_size,global_batch_size,time_per_epoch_s,steps_per_epoch"
    first, second = read(header, "2,64,35,70", "2,64,35,")
    assert (first["step_time_s"], first["time_per_epoch_s"]) == (0.5, 35.0)
    assert (second["step_time_s"], second["time_per_epoch_s"]) == (None, 35.0)


def test_whole_numbers_may_be_written_as_programs_write_them() -> None:
    [row] = read(HEADER, "2.0,6.4e1,5e-1")
    assert (row["world_size"], row["global_batch_size"], row["step_time_s"]) == (2, 64, 0.5)


@pytest.mark.parametrize("ending", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_byte_order_mark_and_line_endings_do_not_matter(ending: str, mark: bytes) -> None:
    text = ending.join([" World_Size ,GLOBAL_BATCH_SIZE,step_time_s", "", " 2 ,64,0.5", ""])
    read_here = read_table(mark + text.encode()).measurements
    assert [m.source_key for m in read_here] == keys(HEADER, "2,64,0.5")
    assert read_here[0].row_number == 3


def test_a_table_without_rows_has_no_measurements() -> None:
    assert read(HEADER) == []


def test_a_column_can_be_left_out_by_name() -> None:
    [row] = read(f"{HEADER},Notes", "2,64,0.5,a fast one", ignored=("notes",))
    assert row["step_time_s"] == 0.5


def test_a_column_with_a_meaning_cannot_be_left_out() -> None:
    with pytest.raises(InvalidSpec, match=r"^column step_time_s: expected a column that has no"):
        read(HEADER, "2,64,0.5", ignored=("step_time_s",))


# --- the same twice ---------------------------------------------------------------------------


def test_the_order_of_rows_and_columns_does_not_matter() -> None:
    there = keys(HEADER, "2,64,0.5", "4,64,0.25")
    back = keys("step_time_s,global_batch_size,world_size", "0.250,64,4", "5e-1,64,2")
    assert sorted(there) == sorted(back)


def test_a_default_that_is_written_says_nothing_new() -> None:
    plain = keys(HEADER, "2,64,0.5")
    columns = "status,server_count,one_way_delay_ms,pass,model"
    assert keys(f"{HEADER},{columns}", "2,64,0.5,OK,0,-0,forward_backward,") == plain


@pytest.mark.parametrize(
    "cells", ["3,64,0.5,,", "2,65,0.5,,", "2,64,0.6,,", "2,64,0.5,20,", "2,64,0.5,,1"]
)
def test_whatever_differs_is_another_measurement(cells: str) -> None:
    header = f"{HEADER},one_way_delay_ms,repetition"
    assert keys(header, cells) != keys(header, "2,64,0.5,,")


def test_rows_that_are_alike_are_repetitions_and_stay_apart() -> None:
    rows = read(HEADER, "2,64,0.5", "4,64,0.5", "2,64,0.5", "2,64,0.6")
    assert len({m.source_key for m in rows}) == 4
    assert [m.repetition for m in rows] == [0, 0, 1, 2]


def test_repetitions_that_are_given_are_kept() -> None:
    rows = read(f"{HEADER},repetition", "2,64,0.5,7", "2,64,0.6,7")
    assert [m.repetition for m in rows] == [7, 7]


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("column", "cell", "expected"),
    [
        ("step_time_s", "0", "a number of seconds from 1e-09 to 1e+09, got 0.0"),
        ("step_time_s", "-1", "a number of seconds from 1e-09"),
        ("step_time_s", "nan", "a number such as 0.25 or 1e-3, or nothing, got 'nan'"),
        ("step_time_s", "inf", "a number such as"),
        ("step_time_s", "1e999", "a number such as 0.25 or 1e-3, or nothing (from -1.8e+308 to"),
        ("step_time_s", "1_0", "a number such as"),
        ("step_time_s", "0,5", "a number such as"),
        ("step_time_s", "fast", "a number such as 0.25 or 1e-3, or nothing, got 'fast'"),
        ("step_time_spread_s", "-0.1", "a number of seconds from 0 to 1e+09, got -0.1"),
        ("time_per_epoch_s", "0", "a number of seconds from 1e-09"),
        ("accuracy", "1.5", "a ratio from 0 to 1, got 1.5"),
        ("accuracy", "-0.1", "a ratio from 0 to 1"),
        ("world_size", "0", "a whole number from 1 to 4096, got 0"),
        ("world_size", "1.5", "a whole number from 1 to 4096, got 1.5"),
        ("world_size", "", "a value: it is required, got None"),
        ("global_batch_size", "64.000", "64 or 64000, whichever is meant, got '64.000'"),
        ("global_batch_size", "1.000.000", "a number such as 0.25 or 1e-3, or nothing (without"),
        ("global_batch_size", "1.024", "a whole number (without a separator of thousands: 1024)"),
        ("steps_per_epoch", "1.000", "1 or 1000, whichever is meant"),
        ("jitter_ms", "100", "at most one_way_delay_ms, 0, got 100.0"),
        ("bandwidth_mbit_per_s", "1e-160", "a number of Mbit/s from 0.001 to 1000000"),
        ("global_batch_size", "1", "at least one example for each of 2 replicas, got 1"),
        ("one_way_delay_ms", "-20", "a number of milliseconds from 0 to 10000, got -20.0"),
        ("one_way_delay_ms", "20 ms", "a number such as"),
        ("bandwidth_mbit_per_s", "0", "a number of Mbit/s from 0.001 to 1000000"),
        ("packet_loss_percent", "100", "a percentage from 0 to below 100"),
        ("steps_per_epoch", "0", "a whole number from 1"),
        ("pass", "backward", "'forward' or 'forward_backward', got 'backward'"),
        ("status", "x" * 33, "at most 32 characters"),
        ("fingerprint", "x" * 65, "at most 64 characters"),
        ("model", "a\x07b", "printable characters, got 'a\\x07b'"),
    ],
)
def test_a_cell_that_cannot_be_is_refused_by_row_and_column(
    column: str, cell: str, expected: str
) -> None:
    cells = {"world_size": "2", "global_batch_size": "64", "step_time_s": "0.5", column: cell}
    quoted = ",".join(f'"{text}"' for text in cells.values())
    message = refusal(",".join(cells), "2,64,0.5" + "," * (len(cells) - 3), quoted)
    assert message.startswith(f"row 3, column {column}: expected {expected}")


def test_a_step_longer_than_its_epoch_is_refused() -> None:
    message = refusal(f"{HEADER},time_per_epoch_s", "2,64,10,5")
    assert message.startswith("row 2, column step_time_s: expected at most time_per_epoch_s, 5")


def test_half_of_an_epochs_steps_take_the_median_or_longer() -> None:
    header = f"{HEADER},time_per_epoch_s,steps_per_epoch"
    assert read(header, "2,64,0.1,5.1,100")
    message = refusal(header, "2,64,0.1,4.9,100")
    assert "column step_time_s: expected at most 2 x time_per_epoch_s / steps_per_epoch, 0.098" in (
        message
    )


@pytest.mark.parametrize("word", ["succeeded", "Done", "true", "0"])
def test_a_success_by_another_name_is_no_failure(word: str) -> None:
    message = refusal(f"{HEADER},status", f"2,64,0.1,{word}")
    assert message.startswith("row 2, column status: expected ok, or why there is no time")


def test_a_column_without_a_name_has_nothing_in_it() -> None:
    [row] = read(f"{HEADER},,", "2,64,1,, ")
    assert row["step_time_s"] == 1
    expected = "row 2, column 5: expected nothing, since the column has no name, got 'x'"
    assert refusal(f"{HEADER},,", "2,64,1,,x") == expected


def test_a_spreadsheet_is_refused_with_what_to_do() -> None:
    with pytest.raises(InvalidSpec, match="the table: expected text: save it as CSV in"):
        read_table(b"PK\x03\x04\x14\x00\x06\x00\xff")


def test_an_epoch_of_one_step_may_come_out_a_little_shorter_than_the_step() -> None:
    header = f"{HEADER},time_per_epoch_s,steps_per_epoch"
    assert read(header, "2,64,1.05,1,1")
    assert "time_per_epoch_s" in refusal(header, "2,64,1.05,1,3")
    assert "time_per_epoch_s" in refusal(header, "2,64,1.2,1,1")


def test_a_success_without_a_time_is_refused() -> None:
    message = refusal(HEADER, "2,64,")
    assert message.startswith("row 2, column step_time_s: expected a time here or in column")
    assert "status" in message


def test_the_first_refusal_says_how_many_there_are() -> None:
    message = refusal(HEADER, "2,64,0", "2,64,1", "x,64,-1")
    assert message.startswith("row 2, column step_time_s (the first of 3 such cells): expected")


def test_a_column_that_is_not_known_is_named_with_the_one_that_was_meant() -> None:
    message = refusal("world_size,global_batch_size,step_time_s,one_way_delay", "2,64,1,20")
    assert message.startswith("column one_way_delay: expected columns of the measurement table")
    assert "name it one_way_delay_ms or one_way_delay_s" in message
    assert "did you mean 'strategy'?" in refusal(f"{HEADER},strategi", "2,64,1,x")


@pytest.mark.parametrize(
    ("lines", "start"),
    [
        (
            [""],
            "column world_size: expected this column: it is required, and so is global_batch_size",
        ),
        (["world_size,step_time_s", "2,1"], "column global_batch_size: expected this column"),
        ([f"{HEADER},step_time_s", "2,64,1,1"], "column step_time_s: expected each column once"),
        ([HEADER, "2,64"], "row 2: expected 3 cells as in row 1, got 2"),
        ([HEADER, "2,64,0,5"], "row 2: expected 3 cells as in row 1 (numbers with a decimal point"),
        ([HEADER, '2,64,"1'], "row 2: expected comma-separated values, quoted correctly"),
        ([HEADER, '2,64,"1"0'], "row 2: expected comma-separated values, quoted correctly"),
    ],
)
def test_what_is_no_table_is_refused(lines: list[str], start: str) -> None:
    assert refusal(*lines).startswith(start)


def test_another_encoding_is_refused_with_the_row() -> None:
    content = f"{HEADER},model\n2,64,1,a\n2,64,1,caf\u00e9\n".encode("latin-1")
    with pytest.raises(InvalidSpec, match=r"^row 3: expected text in UTF-8, got b'\\xe9'"):
        read_table(content)


def test_a_table_that_is_too_large_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sheet, "MAX_ROWS", 2)
    assert len(read(HEADER, "2,64,1", "2,64,2")) == 2
    assert refusal(HEADER, "2,64,1", "2,64,2", "2,64,3").startswith("row 4: expected at most 2")
    monkeypatch.setattr(sheet, "MAX_SHEET_BYTES", 10)
    assert refusal(HEADER).startswith("the table: expected at most 10 bytes")


def test_all_that_has_to_be_mended_is_told_at_once() -> None:
    lines = [HEADER, "2,64,1", "2,64,0", "0,64,1", "4,,1"]
    checked = check_table("\n".join(lines).encode())
    assert checked.reading is None
    assert [error.field for error in checked.refused] == [
        "row 3, column step_time_s",
        "row 4, column world_size",
        "row 5, column global_batch_size",
    ]
    fine = check_table(f"{HEADER}\n2,64,1".encode())
    assert fine.refused == ()
    assert fine.reading is not None
    assert len(fine.reading.measurements) == 1


# --- other units, and other names -------------------------------------------------------------


@pytest.mark.parametrize("separator", [";", "\t"])
def test_semicolons_and_tabs_may_be_between_the_columns(separator: str) -> None:
    assert keys(HEADER.replace(",", separator), f"2{separator}64{separator}0.5") == keys(
        HEADER, "2,64,0.5"
    )
    message = refusal(HEADER.replace(",", ";"), "2;64;0,5")
    assert "or nothing (with a decimal point), got '0,5'" in message


@pytest.mark.parametrize(
    ("column", "cell", "known", "value"),
    [
        ("step_time_ms", "250", "step_time_s", "0.25"),
        ("Step Time [ms]", "250", "step_time_s", "0.25"),
        ('"step time, ms"', "250", "step_time_s", "0.25"),
        ("stepTimeMs", "250", "step_time_s", "0.25"),
        ("step time (\u00b5s)", "250", "step_time_s", "0.00025"),
        ("step time (s)", "0.25", "step_time_s", "0.25"),
        ("ms_per_step", "250", "step_time_s", "0.25"),
        ("time_per_epoch_ms", "250", "time_per_epoch_s", "0.25"),
        ("epoch time [min]", "2", "time_per_epoch_s", "120"),
        ("examples_per_s", "640", "step_time_s", "0.1"),
        ("throughput_examples_per_s", "640", "step_time_s", "0.1"),
        ("images_per_s", "640", "step_time_s", "0.1"),
        ("Images/sec", "640", "step_time_s", "0.1"),
        ("samples_per_second", "640", "step_time_s", "0.1"),
        ("images_per_min", "38400", "step_time_s", "0.1"),
        ("steps_per_s", "4", "step_time_s", "0.25"),
        ("step time (mins)", "2", "step_time_s", "120"),
        ("step_time_mins", "2", "step_time_s", "120"),
    ],
)
def test_a_time_or_throughput_with_its_unit_is_converted(
    column: str, cell: str, known: str, value: str
) -> None:
    others = "world_size,global_batch_size"
    assert keys(f"{others},{column}", f"2,64,{cell}") == keys(f"{others},{known}", f"2,64,{value}")


@pytest.mark.parametrize(
    ("column", "cell", "known", "value"),
    [
        ("one_way_delay_s", "0.02", "one_way_delay_ms", "20"),
        ("jitter_us", "300", "jitter_ms", "0.3"),
        ("bandwidth_gbit_per_s", "1", "bandwidth_mbit_per_s", "1000"),
        ("bandwidth [Gbit/s]", "1", "bandwidth_mbit_per_s", "1000"),
        ("bandwidth_mbyte_per_s", "10", "bandwidth_mbit_per_s", "80"),
        ("packet_loss_ratio", "0.01", "packet_loss_percent", "1"),
        ("Packet loss [%]", "1", "packet_loss_percent", "1"),
        ("accuracy [%]", "95", "accuracy", "0.95"),
    ],
)
def test_a_network_or_ratio_with_its_unit_is_converted(
    column: str, cell: str, known: str, value: str
) -> None:
    delayed = HEADER if "delay" in column else f"{HEADER},one_way_delay_ms"
    cells = "2,64,1" if "delay" in column else "2,64,1,50"
    assert keys(f"{delayed},{column}", f"{cells},{cell}") == keys(
        f"{delayed},{known}", f"{cells},{value}"
    )
    assert keys(f"{HEADER},{column}", "2,64,1,") == keys(HEADER, "2,64,1")


def test_a_batch_of_one_replica_is_multiplied_by_their_number() -> None:
    header = "world_size,per_replica_batch_size,step_time_s"
    assert keys(header, "4,16,1") == keys(HEADER, "4,64,1")
    header = "images_per_s,replicas_per_rank,per_replica_batch_size,world_size"
    assert keys(header, "64,2,16,4") == keys(f"{HEADER},replicas_per_rank", "4,128,2,2")
    message = refusal(header, "1,2,16.000,4")
    assert message.startswith("row 2, column per_replica_batch_size")
    assert "expected 16 or 16000, whichever is meant, got '16.000'" in message
    message = refusal(header, "1,2,16,")
    assert message.startswith("row 2, column per_replica_batch_size")
    assert "expected a value of world_size in the same row" in message


def test_a_throughput_beside_a_step_time_is_passed_along() -> None:
    header = f"{HEADER},throughput_examples_per_s"
    assert keys(header, "2,64,0.5,128") == keys(HEADER, "2,64,0.5")
    assert read_table(f"{header}\n2,64,0.5,128\n".encode()).conversions == ()


@pytest.mark.parametrize(
    ("job_id", "is_refused"),
    [
        *(("128,", False), ("61,", False), ("268,", False), ("275,", True), ("99999,7", True)),
        # A few long steps make the mean longer than the median, as an export may have it.
        *(("60,", True), ("60,7", False), ("0,", True)),
    ],
)
def test_a_throughput_that_the_step_time_rules_out_is_refused(
    job_id: str, is_refused: bool
) -> None:
    lines = f"{HEADER},throughput_examples_per_s,job_id", f"2,64,0.5,{job_id}"
    if is_refused:
        assert refusal(*lines).startswith(
            "row 2, column throughput_examples_per_s: expected about global_batch_size / "
            "step_time_s, 128, at most 2.1 times"
        )
    else:
        assert keys(*lines) == keys(HEADER, "2,64,0.5")


@pytest.mark.parametrize("column", ["step_time_s", "time_per_epoch_s", "step_time_ms"])
def test_a_time_beside_a_status_that_says_why_there_is_none_is_refused(column: str) -> None:
    header = f"world_size,global_batch_size,{column},status"
    message = refusal(header, "2,64,0.5,out_of_memory")
    assert message.startswith(f"row 2, column {column}")
    assert "expected nothing, since the status is out_of_memory" in message


def test_what_was_converted_is_said() -> None:
    table = read_table(b"world_size,per_replica_batch_size,step time (ms)\n2,32,250\n")
    assert table.conversions == (
        "global_batch_size = per_replica_batch_size x world_size x replicas_per_rank",
        "step_time_s = step time (ms) / 1000",
    )
    assert read_table(f"{HEADER}\n2,64,1\n".encode()).conversions == ()
    [conversion] = read_table(b"world_size,global_batch_size,steps_per_min\n2,64,30\n").conversions
    assert conversion == "step_time_s = 1 / (steps_per_min / 60)"


@pytest.mark.parametrize(
    ("header", "cells", "expected"),
    [
        ("step_time_ms", "0", "row 2, column step_time_ms (step_time_s): expected a number of s"),
        ("step_time_ms", "2,5", "row 2, column step_time_ms: expected a number such as"),
        ("images_per_s", "0", "row 2, column images_per_s: expected a number above 0, got '0'"),
        ("images_per_s", "1e-30", "row 2, column images_per_s (step_time_s): expected a number of"),
        ("images_per_s", "-5", "row 2, column images_per_s: expected a number above 0"),
        ("images_per_s", "", "row 2, column images_per_s (step_time_s): expected a time here"),
    ],
)
def test_what_is_converted_is_checked_as_any_other(header: str, cells: str, expected: str) -> None:
    message = refusal(f"world_size,global_batch_size,{header}", f'2,64,"{cells}"')
    assert message.startswith(expected)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("step_time_s", "step_time_ms"),
        ("step_time_ms", "Step time [ms]"),
        ("step_time_s", "images_per_s"),
        ("global_batch_size", "per_replica_batch_size"),
    ],
)
def test_two_columns_that_give_the_same_are_refused_and_one_can_be_ignored(
    one: str, other: str
) -> None:
    left = HEADER if one in HEADER else HEADER.replace("step_time_s", one)
    message = refusal(f"{left},{other}", "2,64,1,1")
    assert message.startswith(f"columns {one}, {other}: expected one column that gives ")
    assert len(read(f"{left},{other}", "2,64,1,1", ignored=(other,))) == 1


def test_all_columns_that_are_not_known_are_named_at_once_with_what_they_may_mean() -> None:
    message = refusal("gpus,batch_size,delay,throughput,weather", "2,64,20,100,fine")
    assert message.startswith("columns gpus, batch_size, delay, throughput, weather: expected")
    for part in (
        "gpus: devices: name it world_size",
        "batch_size: its name does not say whose",
        "delay: a del",
    ):
        assert part in message
    assert "throughput: a throughput: name it examples_per_s" in message
    assert "weather: none of model, dataset" in message
    assert "world_size, global_batch_size: required, and not there" in message


@pytest.mark.parametrize(
    ("column", "meant", "not_meant"),
    [
        ("time_ms", "step_time_ms", "step_time_s"),
        ("epoch_time", "time_per_epoch_s", "step_time"),
        ("step_time", "step_time_ms", "time_per_epoch"),
        ("step_time_min", "step_time_s", "time_per_epoch"),
        ("throughput", "examples_per_s", "time_per_epoch"),
        ("images_per_s_per_gpu", "global_batch_size / (it x their number)", "time_per_epoch"),
        ("per_gpu_batch_size", "per_replica_batch_size", "'global_batch_size'"),
        ("micro_batch_size", "per_replica_batch_size", "'global_batch_size'"),
        ("mini_batch_size", "its name does not say whose batch this is", "one device"),
        ("local_bsz", "per_replica_batch_size", "batch_split"),
        ("batch_size", "per_replica_batch_size", "batch_split"),
        ("gpus", "world_size", "push_s"),
        ("num_gpus", "world_size", "push_s"),
        ("nodes", "world_size", "model"),
        ("num_nodes", "world_size", "model"),
        ("workers", "world_size", "model"),
        ("delay", "one_way_delay_s", "model"),
        ("rtt_ms", "half", "jitter"),
        ("bandwidth (MB/s)", "bandwidth_mbyte_per_s", "jitter"),
        ("dataset_size", "steps_per_epoch = size / global_batch_size", "dataset,"),
        ("n_samples", "steps_per_epoch = size / global_batch_size", "examples_per_s"),
        ("Unnamed: 0", "a number that a program gave", "world_size"),
        ("local batch size", "per_replica_batch_size", "did you mean"),
        ("local_batch", "per_replica_batch_size", "did you mean"),
        ("gbs", "name it global_batch_size", "per_replica"),
        ("kimg/s", "multiply its values", "did you mean"),
        ("ksamples_per_s", "multiply its values", "did you mean"),
        ("thousand images per s", "multiply its values", "throughput)"),
        ("iter_ms", "step_time_ms", "jitter"),
        ("step time std (ms)", "step_time_spread_s", "step_time_ms"),
    ],
)
def test_a_hint_goes_by_meaning_and_unit(column: str, meant: str, not_meant: str) -> None:
    message = refusal(f"{HEADER},{column}", "2,64,1,1").partition(": expected")[2]
    assert meant in message
    assert not_meant not in message


@pytest.mark.parametrize(
    "column",
    [
        *(
            "\u03c3 step time (ms)",
            "step_time_s (\u03c3)",
            "step_time_s_\u03c3",
            "\u0394step_time_s",
        ),
        *("step time \u00b1 (ms)", "step time +- (ms)", "step time + (ms)", "step time - (ms)"),
        *(
            "\u2211 step_time_s",
            "\u221astep_time_s",
            "\u2264step_time_s",
            "~step_time_s",
            "<step_time_s",
        ),
        *("step_time_s*", "step_time_s^2", "-step_time_s", "\u2212step_time_s", "step_time_s?"),
        *("\u6700\u5927 step_time_ms", "\u043c\u0430\u043a\u0441 step_time_ms", "st\u00e9p_time_s"),
        *("\u03c3 world_size", "\u0394 one_way_delay_ms", "step_time_s\u207b\u00b9"),
    ],
)
def test_a_sign_that_is_not_understood_makes_another_quantity_of_a_column(column: str) -> None:
    message = refusal(f"{HEADER.replace('step_time_s', 'time_per_epoch_s')},{column}", "2,64,1,1")
    hint = message.partition(f"({column}: ")[2]
    assert hint.split("' ", 1)[1].startswith("is not understood: rename the column only if")
    assert "name it" not in hint


@pytest.mark.parametrize(
    "column",
    [
        *("step-time-s", "Step time, s", "step time - s", "step_time.s", "{step time} [s]"),
        *("step\u2013time (s)", "# step_time_s", "\u200bstep\u00a0time_s", "\uff53tep time: s"),
    ],
)
def test_what_only_stands_between_words_says_nothing(column: str) -> None:
    others = "world_size,global_batch_size"
    assert keys(f'{others},"{column}"', "2,64,1") == keys(HEADER, "2,64,1")


def test_a_wide_table_of_another_quantity_is_not_to_be_renamed() -> None:
    columns = "\u03c3 step time n=1 (ms),\u03c3 step time n=2 (ms)"
    message = refusal(f"global_batch_size,{columns}", "64,1,1")
    assert "is not understood: rename the column only if" in message
    assert "such as step_time_ms" not in message


@pytest.mark.parametrize("separator", [" ", "  ", " | "])
def test_columns_between_spaces_are_not_taken_for_one(separator: str) -> None:
    message = refusal(HEADER.replace(",", separator), "2 64 1")
    assert message.startswith("row 1: expected commas, semicolons or tabs between the columns")


STEP_RATE = "a rate of steps: step_time_s = 1 / it"
EPOCH_RATE = "a rate of epochs: time_per_epoch_s = 1 / it"
ONE_DEVICE = "global_batch_size / (it x their number)"
ONE_EXAMPLE = "a time of one example: step_time_s = it x"
MEDIAN = "not the median, which is wanted"
THOUSANDS = "in thousands or millions: multiply its values"
SEVERAL = "a time of several: divide it by their number"
BYTES = "a throughput of bits or bytes, not of examples, has no column here"
TARGET = "there is no column for the time to an accuracy"
ERROR = "an error: accuracy = 1 - it"


@pytest.mark.parametrize(
    ("column", "meant"),
    [
        *(
            (column, STEP_RATE)
            for column in (
                *("batch/sec", "batches/sec", "batches per second", "global_step/sec", "updates/s"),
                *("global_steps_per_sec", "updates_per_sec", "steps/s/worker", "throughput (it/s)"),
                *("throughput (steps/s)", "throughput [batches/s]", "worker_steps_per_s"),
                *(
                    "step rate",
                    "minibatches/s",
                    "steps per sec per GPU",
                    "avg_it_per_second",
                    "mean iterations/min",
                ),
            )
        ),
        *(
            (column, EPOCH_RATE)
            for column in ("epochs/s", "epochs/h", "epochs per minute", "throughput (epochs/h)")
        ),
        *((column, "name it epochs") for column in ("n_epochs", "max_epochs", "epochs_trained")),
        *(
            (column, ONE_EXAMPLE)
            for column in ("time per image (ms)", "time_per_sample_s", "ms/image", "s/sample")
        ),
        *(
            (column, BYTES)
            for column in (
                *("throughput_gbps", "throughput (MB/s)", "throughput_bytes_per_s"),
                *("throughput [Gbit/s]", "network throughput"),
            )
        ),
        *(
            (column, THOUSANDS)
            for column in ("throughput (1000 img/s)", "throughput_k", "examples/s (k)", "kimg/s")
        ),
        *(
            (column, ONE_DEVICE)
            for column in (
                *("per_worker_images_per_s", "per-GPU throughput", "images/s/GPU", "gpu_img_per_s"),
                *(
                    "images/s/card",
                    "throughput per node",
                    "throughput (each worker)",
                    "local_images_per_s",
                ),
            )
        ),
        *(
            (column, MEDIAN)
            for column in (
                *("longest_step_s", "step time q3 (ms)"),
                *("p99_step_time_ms", "max_step_time_ms", "min_step_time_ms", "p95 epoch time (s)"),
                *(
                    "step_time_p25_ms",
                    "worst step time (s)",
                    "peak images/s",
                    "step time (max) [s]",
                ),
            )
        ),
        *(
            (column, "a time of several steps: step_time_s is the median of the timed steps")
            for column in ("total step time (ms)", "sum of step time (s)", "cum_iteration_time_s")
        ),
        *((column, TARGET) for column in ("time_to_accuracy_s", "time to acc (h)")),
        *(
            (column, TARGET)
            for column in ("epochs_to_accuracy", "time to 90 % accuracy", "time_to_97")
        ),
        *(
            (column, ERROR)
            for column in ("top1_error", "top_1_error (%)", "error_rate", "test err")
        ),
        *((column, SEVERAL) for column in ("s/1000 images", "time_per_100_steps_s", "s/100it")),
        ("steps/epoch (n)", "none of model"),
        ("time (min/epoch)", "a time of an epoch"),
        ("epoch count", "name it epochs"),
        ("machines used", "name it world_size"),
        ("tok/s", "a rate of tokens"),
        ("iterations per epoch", "name it steps_per_epoch"),
        ("step_latency_ms", "a time of a step"),
        ("sec/batch", "a time of a step"),
        ("step_time_min", "the least of several"),
        ("bw_gbps", "a bandwidth"),
        *(
            (column, "a throughput: name it examples_per_s")
            for column in ("sequences/s", "queries per second", "QPS", "requests/s", "tput", "im/s")
        ),
        ("sequences/s/GPU", ONE_DEVICE),
        ("owd_ms", "a delay: name it one_way_delay_ms"),
        *(
            (column, "a time of a whole run")
            for column in ("wall_clock_s", "wall clock [h]", "time_to_train", "wall_s")
        ),
        ("convergence time (s)", TARGET),
        ("grad_accum_steps", "steps of a gradient accumulation"),
        ("link (Gbit/s)", "a bandwidth"),
        ("forward_time_ms", "a part of the work"),
        ("per_device_train_batch_size", "a batch of one device"),
    ],
)
def test_a_hint_goes_by_quantity_unit_and_of_what_it_is(column: str, meant: str) -> None:
    assert meant in refusal(f"{HEADER},{column}", "2,64,1,1").partition(": expected")[2]


@pytest.mark.parametrize(
    "column",
    [
        *("momentum", "price_usd", "gpu_memory_mb", "notes", "price_per_hour", "comment"),
        *("memory_mbytes", "gpu_mem_gbytes", "model_size_mbytes", "gradient_mbytes"),
        *("sent_mbytes_per_step", "net_tx_mbit_per_s", "net_rx_mbit_per_s", "allreduce_gbit_per_s"),
        *("accuracy drop (%)", "accuracy gap", "top5_accuracy", "accuracy_std", "accuracy after 5"),
        *("log_step_time_s", "ln(step_time_s)", "normalized step time (s)", "step_time_log10_s"),
        *("step time ratio", "step_time_s/1000", "images/s/watt", "step_time_cv"),
        *("step time overhead (ms)", "predicted step time (ms)", "step time error (s)"),
        *("step time diff ms", "step time (10 ms)", "step time (1e-3 s)", "1/step time (1/s)"),
        *("ps step time (ms)", "step time (ms) %", "predicted throughput", "throughput error"),
        *("epoch time overhead (s)", "weighted step time"),
        *("seq_len", "sequence_length", "request_latency_ms"),
        *("relative throughput", "inverse throughput (s/img)", "H", "p99_latency_ms"),
    ],
)
def test_no_hint_is_better_than_a_wrong_one(column: str) -> None:
    assert f"({column}: none of model, " in refusal(f"{HEADER},{column}", "2,64,1,1")


@pytest.mark.parametrize("header", ["batch_size,1,2,4", "batch_size,n=1,n=2,n=4"])
def test_a_wide_table_is_refused_with_how_to_write_it(header: str) -> None:
    message = refusal(header, "64,1,2,3")
    assert f"({header.removeprefix('batch_size,').replace(',', ', ')}: a wide table; " in message
    assert "one row for each of these columns" in message


@pytest.mark.parametrize(
    ("header", "columns", "value"),
    [
        ("world_size,bs32_ms,bs64_ms,bs128_ms", "global_batch_size", "one such as step_time_ms"),
        ("world_size,batch size 32 [us],batch size 64 [us]", "global_batch_size", "step_time_us"),
        (
            "world_size,global_batch_size,step_time_ms_run1,step_time_ms_run2",
            "repetition",
            "one such as step_time_ms",
        ),
        ("batch_size,1 GPU,2 GPUs,4 GPUs", "world_size", "one that has their unit in its name"),
        ("t_1gpu_bs32,t_2gpu_bs32", "world_size and global_batch_size", "one that has their unit"),
        ("bs,n1_epoch_time_s,n2_epoch_time_s", "world_size", "one such as epoch_time_s"),
        ("bs,throughput_n1,throughput_n2", "world_size", "another (a throughput: name it"),
    ],
)
def test_a_wide_table_tells_where_its_numbers_and_values_belong(
    header: str, columns: str, value: str
) -> None:
    message = refusal(header, "1")
    assert f"with their number in a column such as {columns} and their values in " in message
    assert value in message.partition("their values in ")[2]
    assert " GPU: none of" not in message


def test_percentiles_are_no_wide_table() -> None:
    message = refusal("global_batch_size,step_time_p50_ms,step_time_p99_ms", "64,1,2")
    assert "wide" not in message
    assert f"step_time_p99_ms: {MEDIAN}" in message


@pytest.mark.parametrize("other", ["step time (max)", "mean step time", "step_time_avg_s"])
def test_min_beside_another_statistic_is_not_minutes(other: str) -> None:
    others = "world_size,global_batch_size"
    message = refusal(f"{others},step time (min),{other}", "2,64,1,2")
    assert "step time (min): minutes, or the least of several: name minutes" in message
    with pytest.raises(InvalidSpec, match="the least of several"):
        read(f"{others},step time (min),{other}", "2,64,1,2", ignored=(other,))
    assert keys(f"{others},step time (min),accuracy", "2,64,1,") == keys(HEADER, "2,64,60")


@pytest.mark.parametrize(
    "lines",
    [
        ['world_size;global_batch_size;"Step time, ms"', "2;64;500"],
        ["sep=;", "world_size;global_batch_size;step_time_s", "2;64;0.5"],
        ['"sep=\t"', "world_size\tglobal_batch_size\tstep_time_s", "2\t64\t0.5"],
        ["sep=,", HEADER, "2,64,0.5"],
        ["SEP=;;", "world_size;global_batch_size;step_time_s", "2;64;0.5"],
    ],
)
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_the_separator_is_what_the_header_has_outside_of_quotes_or_says(
    lines: list[str], ending: str
) -> None:
    [row] = read_table(ending.join(lines).encode()).measurements
    assert (row["step_time_s"], row.row_number) == (0.5, len(lines))


@pytest.mark.parametrize("text", ['[{"world_size": 2}]', '\ufeff\n{"a": 1}\n', "[\n  {\n", "[]"])
def test_json_is_said_to_be_json(text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"^the table: expected comma-separated values: save it"):
        read_table(text.encode())


def test_columns_that_are_missing_are_named_at_once_with_what_was_left_out() -> None:
    with pytest.raises(InvalidSpec) as refused:
        read("gpus,batch size,step_time_s", ignored=("gpus", "batch size"))
    message = str(refused.value)
    assert message.startswith(
        "column world_size: expected this column: it is required, and so is global_batch_size (gpus"
    )
    assert "(gpus: devices: name it world_size" in message
    assert "; batch size: its name does not say whose" in message


def test_a_table_of_very_many_or_very_long_columns_is_refused_in_a_short_line() -> None:
    many = ",".join(f"weather {'x' * (i + 1)}" for i in range(500))
    message = refusal(many, "1")
    assert "and 480 more" in message
    assert len(message) < 3000
    assert len(refusal(f"{HEADER},{'in ' * 100_000}", "2,64,1,1")) < 3000
