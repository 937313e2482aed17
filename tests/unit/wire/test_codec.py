"""The codec reads its own bytes and those of an older or newer version, and refuses everything else by name."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from outrider.wire import codec, reader
from outrider.wire.codec import (
    MAX_BYTES,
    MAX_ITEMS,
    NAME,
    BadMessage,
    decode_from_master,
    decode_from_sidecar,
    encode,
    name_at,
)
from outrider.wire.ids import Generation, JobName, MemberId, OrderId, PodUid, RankIndex, Role
from outrider.wire.messages.checkpoints import Copy, Fetch, Fetched, Kept, Remembered, Wanted
from outrider.wire.messages.data_position import DataSaid
from outrider.wire.messages.diagnostics import Answer
from outrider.wire.messages.directions import FromSidecar, Message
from outrider.wire.messages.generation import Acknowledged, Exited, Ready, Start, Stop, WorkerExit
from outrider.wire.messages.links import LinkSeen, Neighbour, Ping, Pong
from outrider.wire.messages.log_lines import Group, LineMatched, PatternDropped
from outrider.wire.messages.membership import Finish, Hello, Welcome
from outrider.wire.messages.node_check import Check, Checked, CheckPeer, PeerCheck
from outrider.wire.messages.report import OwnTime, RankProgress, Report
from tests.unit.wire.strategies import from_master, from_sidecar

OF_DATA = b"\xacelastic_data\xc2\xadkeep_batch_of\x00" + b"\xa9tf_config\xa0\xa9worker_id\x00\xaaworker_num\x00"
OF_DATA += b"\xabbegins_from\xff\xa9begins_in\x92\x00\x00\xa6prints\x90\xaerequire_resume\xc2"
"""How a Start ends that asks for nothing about the data, in an all-reduce job."""
HELLO = Hello(JobName("digits"), MemberId("worker-1"), PodUid("ab12"), Role("worker"), RankIndex(1), "secret")
START = Start(
    order=OrderId(7),
    generation=Generation(2, 5),
    restart_count=4,
    master_addr="10.0.0.3",
    master_port=2222,
    group_rank=1,
    group_world_size=4,
    first_rank=2,
    nproc=2,
    world_size=8,
    role=Role("worker"),
    role_first_rank=2,
    role_world_size=8,
    rank_index=RankIndex(1),
    saves=(("/data/a.pt", 40),),
)


def raw(message: Message) -> dict[str, Any]:
    found = msgpack.unpackb(encode(message), unicode_errors="surrogatepass")
    assert isinstance(found, dict)
    return found


def changed(original: Message, /, **values: object) -> bytes:
    packed = msgpack.packb({**raw(original), **values}, unicode_errors="surrogatepass")
    assert isinstance(packed, bytes)
    return packed


@given(from_sidecar)
def test_a_message_of_a_sidecar_survives_encoding(message: Message) -> None:
    assert decode_from_sidecar(encode(message)) == message


@given(from_master)
def test_a_message_of_a_master_survives_encoding(message: Message) -> None:
    assert decode_from_master(encode(message)) == message


def test_an_acknowledgement_is_these_bytes() -> None:
    assert encode(Acknowledged(OrderId(300))) == b"\x82\xa7message\xacAcknowledged\xa5order\xcd\x01\x2c"
    assert decode_from_sidecar(b"\x82\xa7message\xacAcknowledged\xa5order\xcd\x01\x2c") == Acknowledged(OrderId(300))


def test_a_stop_is_these_bytes() -> None:
    expected = (
        b"\x87\xa7message\xa4Stop\xa5order\x09\xaageneration\x92\x02\x05\xa5grace\xcb?\xc9\x99\x99\x99\x99\x99\x9a"
        b"\xadhandler_grace\xcb@$\x00\x00\x00\x00\x00\x00\xaasave_grace\xcb@N\x00\x00\x00\x00\x00\x00\xa6reason\xa2no"
    )
    assert encode(Stop(OrderId(9), Generation(2, 5), reason="no")) == expected
    assert decode_from_master(expected) == Stop(OrderId(9), Generation(2, 5), reason="no")


def test_a_start_with_a_neighbour_is_these_bytes() -> None:
    start = replace(START, saves=(), neighbours=(Neighbour(MemberId("worker-2"), "10.0.0.2", 9000),))
    expected = (
        b"\xde\x00\x15\xa7message\xa5Start\xa5order\x07\xaageneration\x92\x02\x05\xadrestart_count\x04"
        b"\xabmaster_addr\xa810.0.0.3\xabmaster_port\xcd\x08\xae\xaagroup_rank\x01\xb0group_world_size\x04"
        b"\xaafirst_rank\x02\xa5nproc\x02\xaaworld_size\x08\xa4role\xa6worker\xafrole_first_rank\x02"
        b"\xafrole_world_size\x08\xaarank_index\x01\xacmax_restarts\x0a\xa3job\xa0\xa9high_step\x00\xa5saves\x90"
        b"\xa6reason\xa0\xaaneighbours\x91\x83\xa6member\xa8worker-2\xa7address\xa810.0.0.2\xa4port\xcd#\x28"
    )
    assert encode(start) == expected.replace(b"\x15", b"\x1f", 1) + b"\xa8patterns\x90" + OF_DATA
    assert decode_from_master(expected) == start


def test_a_report_with_a_window_of_steps_is_these_bytes() -> None:
    own = OwnTime(1, 128, 8, "cpu", 0.0, 0.25, 0.5, 7, waited=0.125)
    zero = b"\xcb" + 8 * b"\x00"
    expected = (
        b"\xa3own\x91\x8d\xaalocal_rank\x01\xaafirst_step\xcc\x80\xa5steps\x08\xa6source\xa3cpu\xa3gap" + zero
        + b"\xa4busy\xcb?\xd0" + 6 * b"\x00" + b"\xacstep_seconds\xcb?\xe0" + 6 * b"\x00" + b"\xa5shape\x07"
        + b"\xa3cpu" + zero
        + b"\xa6waited\xcb?\xc0" + 6 * b"\x00" + b"\xa7delayed" + zero + b"\xa9throttled" + zero + b"\xa6stolen" + zero
    )  # fmt: skip
    data = encode(Report(Generation(1, 2), "running", own=(own,)))
    assert data[data.index(b"\xa3own") : data.index(b"\xa5links")] == expected
    assert decode_from_sidecar(data) == Report(Generation(1, 2), "running", own=(own,))


def test_a_report_with_a_link_is_these_bytes_and_what_a_report_does_not_say_has_few() -> None:
    link = LinkSeen(MemberId("worker-2"), 0.25, 3, 23, 1.5)
    expected = (
        b"\xa5links\x91\x85\xa6member\xa8worker-2\xaaround_trip\xcb?\xd0" + 6 * b"\x00" + b"\xa4lost\x03\xa4sent\x17"
        + b"\xa7missing\xcb?\xf8" + 6 * b"\x00" + b"\xa5spent\xc0"
    )  # fmt: skip
    data = encode(Report(Generation(1, 2), "running", links=(link,)))
    assert data[data.index(b"\xa5links") :] == expected
    assert decode_from_sidecar(data) == Report(Generation(1, 2), "running", links=(link,))
    assert encode(Report(Generation(1, 2), "running")).endswith(b"\xa5links\x90\xa5spent\xc0")


def test_a_ping_and_its_answer_are_these_bytes() -> None:
    assert encode(Ping(5)) == b"\x82\xa7message\xa4Ping\xa6number\x05"
    assert decode_from_sidecar(b"\x82\xa7message\xa4Ping\xa6number\x05") == Ping(5)
    assert encode(Pong(5)) == b"\x82\xa7message\xa4Pong\xa6number\x05"
    assert decode_from_master(b"\x82\xa7message\xa4Pong\xa6number\x05") == Pong(5)


CHECK = Check(OrderId(9), 2, 2000, (CheckPeer(MemberId("worker-2"), "10.0.0.2", 2001),), (MemberId("worker-3"),))
CHECKED = Checked(
    OrderId(9), 2, "ok", "", "numpy", 0.5, 0.25, 1.5, (PeerCheck(MemberId("worker-2"), 0.125, "no answer"),), 0.125
)


def test_a_check_and_its_answer_are_these_bytes() -> None:
    order = (
        b"\x8a\xa7message\xa5Check\xa5order\x09\xa5round\x02\xa4port\xcd\x07\xd0\xa5peers\x91\x83\xa6member"
        b"\xa8worker-2\xa7address\xa810.0.0.2\xa4port\xcd\x07\xd1\xa7awaited\x91\xa8worker-3\xa7compute\xc3"
        b"\xa5alone\xc2\xa7address\xa0\xa7seconds\xcb@>\x00\x00\x00\x00\x00\x00"
    )
    answer = (
        b"\x8b\xa7message\xa7Checked\xa5order\x09\xa5round\x02\xa6result\xa2ok\xa5error\xa0\xa4kind\xa5numpy"
        b"\xa7compute\xcb?\xe0\x00\x00\x00\x00\x00\x00\xa3cpu\xcb?\xd0\x00\x00\x00\x00\x00\x00"
        b"\xa7elapsed\xcb?\xf8\x00\x00\x00\x00\x00\x00\xa5peers\x91\x83\xa6member\xa8worker-2"
        b"\xa7seconds\xcb?\xc0\x00\x00\x00\x00\x00\x00\xa5error\xa9no answer"
        b"\xa7held_up\xcb?\xc0\x00\x00\x00\x00\x00\x00"
    )
    assert (encode(CHECK), decode_from_master(order)) == (order, CHECK)
    assert (encode(CHECKED), decode_from_sidecar(answer)) == (answer, CHECKED)


def test_a_line_that_matches_a_pattern_is_these_bytes() -> None:
    message = LineMatched(Generation(1, 2), 3, "loss", "loss 2", 77, 2, 0.5, (Group("loss", "2"),))
    expected = (
        b"\x89\xa7message\xabLineMatched\xaageneration\x92\x01\x02\xa4rank\x03\xa7pattern\xa4loss\xa4line\xa6loss 2"
        b"\xa6serialM\xa5count\x02\xa3age\xcb?\xe0\x00\x00\x00\x00\x00\x00\xa6groups\x91\x82\xa4name\xa4loss\xa4text\xa12"
    )
    assert encode(message) == expected
    assert decode_from_sidecar(expected) == message


def test_a_dropped_pattern_is_these_bytes() -> None:
    message = PatternDropped(Generation(1, 2), "(a+)+$", "too slow")
    expected = (
        b"\x85\xa7message\xaePatternDropped\xaageneration\x92\x01\x02\xa7pattern\xa6(a+)+$"
        b"\xa6reason\xa8too slow\xa4line\xa0"
    )
    assert encode(message) == expected
    assert decode_from_sidecar(expected) == message


def test_a_report_about_data_is_these_bytes() -> None:
    message = DataSaid(Generation(1, 2), 0, "repeated", "again", False, 72)
    expected = (
        b"\x87\xa7message\xa8DataSaid\xaageneration\x92\x01\x02\xa4rank\x00\xa4word\xa8repeated"
        b"\xa8sentence\xa5again\xa7warning\xc2\xa7samplesH"
    )
    assert encode(message) == expected
    assert decode_from_sidecar(expected) == message


def test_an_in_memory_checkpoint_is_these_bytes() -> None:
    message, kept = Remembered(Generation(1, 2), 3, 120, 1 << 30, True, False, 9), Kept(Generation(1, 2), 120)
    of_rank = (
        b"\x88\xa7message\xaaRemembered\xaageneration\x92\x01\x02\xa4rank\x03\xa4stepx"
        b"\xa6length\xce@\x00\x00\x00\xa7sharded\xc3\xa6marked\xc2\xa7counted\x09"
    )
    of_all = b"\x83\xa7message\xa4Kept\xaageneration\x92\x01\x02\xa4stepx"
    assert (encode(message), decode_from_sidecar(of_rank)) == (of_rank, message)
    assert (encode(kept), decode_from_master(of_all)) == (of_all, kept)
    ready = Ready(2000, 1, "T0", "", copies=(Copy(3, 120, True, 4, Generation(1, 2), 9, True),))
    data = encode(ready)
    assert data[data.index(b"\xa6copies") :] == (
        b"\xa6copies\x91\x88\xa4rank\x03\xa4stepx\xa7sharded\xc3\xa5world\x04\xaageneration\x92\x01\x02"
        b"\xa6length\x09\xa4held\xc3\xa6marked\xc2"
    )
    assert decode_from_sidecar(data) == ready


def test_an_order_to_fetch_and_its_answer_are_these_bytes() -> None:
    wanted = Wanted(3, 1, MemberId("worker-2"), "10.0.0.2", 9000, "key", True, 9)
    order = Fetch(OrderId(7), Generation(1, 3), 120, Generation(1, 2), (wanted,), True, 30.0, "why")
    answer = Fetched(OrderId(7), Generation(1, 3), 120, 0.5, "no")
    ordered = (
        b"\x8a\xa7message\xa5Fetch\xa5order\x07\xaageneration\x92\x01\x03\xa4stepx\xa7made_in\x92\x01\x02"
        b"\xa6wanted\x91\x88\xa4rank\x03\xaalocal_rank\x01\xa6member\xa8worker-2\xa7address\xa810.0.0.2"
        b"\xa4port\xcd#(\xaamemory_key\xa3key\xa4held\xc3\xa6length\x09"
        b"\xa7sharded\xc3\xa7seconds\xcb@>\x00\x00\x00\x00\x00\x00\xa6reason\xa3why\xa6marked\xc2"
    )
    answered = (
        b"\x86\xa7message\xa7Fetched\xa5order\x07\xaageneration\x92\x01\x03\xa4stepx"
        b"\xa7seconds\xcb?\xe0\x00\x00\x00\x00\x00\x00\xa5error\xa2no"
    )
    assert (encode(order), decode_from_master(ordered)) == (ordered, order)
    assert (encode(answer), decode_from_sidecar(answered)) == (answered, answer)


def test_the_patterns_of_a_start_are_these_bytes() -> None:
    data = encode(replace(START, patterns=("ECC", "loss (?P<loss>.*)")))
    assert data.endswith(b"\xa8patterns\x92\xa3ECC\xb1loss (?P<loss>.*)" + OF_DATA)


def test_a_finish_without_last_words_is_one_of_an_older_version() -> None:
    body = raw(Finish(OrderId(3), 3, "left out", "worker-1 failed"))
    del body["last_words"]
    assert decode_from_master(msgpack.packb(body)) == Finish(OrderId(3), 3, "left out")


def test_parts_are_maps_and_a_generation_is_a_pair() -> None:
    exited = Exited(Generation(1, 3), (WorkerExit(0, 77, None, signal=9),), alive=1)
    body = raw(exited)
    assert body["generation"] == [1, 3]
    assert body["exits"][0]["pid"] == 77
    assert decode_from_sidecar(encode(exited)) == exited


def test_fields_of_a_newer_version_are_ignored() -> None:
    assert decode_from_sidecar(changed(HELLO, version=9, colour="red", nested={"a": [1]})) == Hello(
        HELLO.job, HELLO.member, HELLO.uid, HELLO.role, HELLO.rank_index, HELLO.token, version=9
    )


def test_a_generation_and_a_part_may_have_grown() -> None:
    report = raw(Report(Generation(1, 2), "running", ranks=(RankProgress(0, 5, 0.1, "step"),)))
    report["generation"].append("new")
    report["ranks"][0]["mood"] = "good"
    found = decode_from_sidecar(msgpack.packb(report))
    assert isinstance(found, Report)
    assert found.generation == Generation(1, 2)
    assert found.ranks[0].step == 5


def test_fields_that_an_older_version_does_not_send_take_their_defaults() -> None:
    body = raw(START)
    for name in ("max_restarts", "job", "high_step", "saves", "reason", "neighbours", "patterns"):
        del body[name]
    found = decode_from_master(msgpack.packb(body))
    assert isinstance(found, Start)
    assert (found.max_restarts, found.saves, found.high_step, found.neighbours) == (10, (), 0, ())


def test_an_integer_is_a_number_of_seconds_too() -> None:
    found = decode_from_master(changed(Welcome(1), silent_after=3))
    assert isinstance(found, Welcome)
    assert found.silent_after == 3.0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"order": "7"}, "Start.order: Invalid value: '7': must be an integer"),
        ({"order": True}, "Start.order: Invalid value: True"),
        ({"order": 2**64 - 1}, "must be an integer of 64 bits"),
        ({"generation": [1]}, "Start.generation: Invalid value: an array: must be a generation: \\[term, number\\]"),
        ({"generation": [-1, 2]}, "Start.generation"),
        ({"generation": {"term": 1}}, "Start.generation"),
        ({"master_addr": None}, "Start.master_addr: Invalid value: None: must be text"),
        ({"master_addr": b"10.0.0.1"}, "Start.master_addr: Invalid value: b'10.0.0.1'"),
        ({"saves": "abc"}, "Start.saves: Invalid value: 'abc': must be an array"),
        ({"saves": [["/a", 1], ["/b"]]}, r"Start.saves\[1\]: Invalid value: an array: must be an array of 2"),
        ({"saves": [["/a", "x"]]}, r"Start.saves\[0\]\[1\]: Invalid value: 'x'"),
        ({NAME: "Begin"}, "'Begin': must be a message from a master, one of Welcome, Refused, Start"),
        ({NAME: "Report"}, "'Report': must be a message from a master"),
        ({NAME: None}, "None: must be a message"),
        ({NAME: ["Start"]}, "an array: must be a message"),
    ],
)
def test_a_wrong_value_is_refused_with_its_path_and_what_it_must_be(change: dict[str, object], complaint: str) -> None:
    with pytest.raises(BadMessage, match=complaint):
        decode_from_master(changed(START, **change))


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf"), "1", None, True])
def test_seconds_that_are_no_finite_number_are_refused(bad: object) -> None:
    with pytest.raises(BadMessage, match=r"Report\.cpu: .* must be a finite number"):
        decode_from_sidecar(changed(Report(Generation(1, 1), "running"), cpu=bad))


def test_a_missing_field_without_a_default_is_named() -> None:
    body = raw(HELLO)
    del body["token"]
    with pytest.raises(BadMessage, match=r"Hello\.token: Required value: must be text"):
        decode_from_sidecar(msgpack.packb(body, unicode_errors="surrogatepass"))


def test_a_part_of_the_wrong_shape_is_named_by_its_path() -> None:
    body = raw(Exited(Generation(1, 1), (WorkerExit(0, 1, 1), WorkerExit(1, 2, 1)), 0))
    body["exits"][1]["pid"] = "two"
    with pytest.raises(BadMessage, match=r"Exited.exits\[1\].pid: Invalid value: 'two'"):
        decode_from_sidecar(msgpack.packb(body, unicode_errors="surrogatepass"))


@given(st.binary(max_size=400))
def test_random_bytes_are_refused_and_nothing_else_happens(data: bytes) -> None:
    for decode in (decode_from_sidecar, decode_from_master):
        with pytest.raises(BadMessage):
            decode(data)


@given(from_sidecar, st.data())
def test_a_truncated_message_is_refused(message: Message, data: st.DataObject) -> None:
    whole = encode(message)
    length = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(BadMessage, match=r"must be a complete msgpack map|must be a message from a sidecar"):
        decode_from_sidecar(whole[:length])


@given(from_sidecar, st.data())
def test_a_message_with_changed_bytes_is_read_or_refused(message: Message, data: st.DataObject) -> None:
    whole = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    with suppress(BadMessage):
        decode_from_sidecar(bytes(whole))


_any_value = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats()
    | st.text(max_size=9)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=12,
)


@given(from_sidecar, st.data())
def test_a_field_of_any_other_type_is_read_or_refused(message: Message, data: st.DataObject) -> None:
    body = raw(message)
    body[data.draw(st.sampled_from(sorted(body)))] = data.draw(_any_value)
    with suppress(BadMessage):
        decode_from_sidecar(msgpack.packb(body, unicode_errors="surrogatepass"))


def test_a_message_of_more_than_a_mebibyte_is_refused_on_both_sides() -> None:
    with pytest.raises(BadMessage, match=f"Answer has .* at most {MAX_BYTES} may be sent"):
        encode(Answer(OrderId(1), "x" * MAX_BYTES))
    with pytest.raises(BadMessage, match="bytes are too many"):
        decode_from_sidecar(b"\xc1" * (MAX_BYTES + 1))


def test_an_array_that_is_too_long_is_refused_on_both_sides() -> None:
    long = (1,) * (MAX_ITEMS + 1)
    with pytest.raises(BadMessage, match="too long"):
        encode(Report(Generation(1, 1), "running", pids=long))
    with pytest.raises(BadMessage, match="must be a complete msgpack map"):
        decode_from_sidecar(changed(Report(Generation(1, 1), "running"), pids=long))


def test_headers_that_promise_gigabytes_reserve_none() -> None:
    import tracemalloc

    tracemalloc.start()
    try:
        for header in (b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdc\x10\x00"):
            with pytest.raises(BadMessage):
                decode_from_sidecar(header * 20_000)
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("data", [b"\x91" * 100_000, b"\x81\xa1a" * 100_000, b"\xc7\x0c\xff" + b"\xff" * 12])
def test_deep_nesting_and_foreign_types_are_refused(data: bytes) -> None:
    with pytest.raises(BadMessage):
        decode_from_sidecar(data)


def test_a_number_too_large_for_the_wire_is_a_bad_message_and_the_next_one_is_written() -> None:
    with pytest.raises(BadMessage, match="Report cannot be written"):
        encode(Report(Generation(1, 1), "running", step=2**70))
    assert decode_from_sidecar(encode(Acknowledged(OrderId(1)))) == Acknowledged(OrderId(1))


def test_no_field_is_called_as_the_name_of_the_message_is() -> None:
    for cls in get_args(Message):
        assert NAME not in {field.name for field in fields(cls)}


# -- how long a text may be --------------------------------------------------------------------------------------------
def test_prose_that_is_too_long_is_cut_and_its_message_is_accepted() -> None:
    exit_ = WorkerExit(0, 77, 1, error_message="m" * 10_000, traceback="t" * 10_000)
    read = decode_from_sidecar(encode(Exited(Generation(1, 3), (exit_,), 1)))
    assert isinstance(read, Exited)
    assert (read.exits[0].traceback, read.exits[0].error_message) == ("t" * 8191 + "…", "m" * 1999 + "…")
    report = decode_from_sidecar(encode(Report(Generation(1, 3), "running", 7, note="n" * 1_000_000)))
    assert isinstance(report, Report)
    assert (report.step, report.note) == (7, "n" * 499 + "…")
    assert decode_from_sidecar(encode(replace(report, note="n" * 500))) == replace(report, note="n" * 500)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"member": "m" * 501},
            "Hello.member: Invalid value: '501 characters of text': must be text of at most 500 characters",
        ),
        ({"job": "j" * 501}, "Hello.job: Invalid value: '501 characters"),
        ({"token": "t" * 16_385}, "Hello.token: Invalid value: '16385 characters"),
        ({"address": "a" * 256}, "Hello.address: Invalid value: '256 characters"),
    ],
)
def test_an_id_that_is_too_long_is_refused(changed: dict[str, str], message: str) -> None:
    hello = Hello(JobName("a/b"), MemberId("worker-0"), PodUid("u"), Role("worker"), RankIndex(0), "")
    with pytest.raises(BadMessage, match=re.escape(message)):
        decode_from_sidecar(encode(replace(hello, **changed)))  # type: ignore[arg-type]


def test_no_text_of_any_message_of_a_sidecar_is_longer_than_its_field_says() -> None:
    for cls in get_args(FromSidecar):
        hints = get_type_hints(cls, include_extras=True)
        for name, hint in hints.items():
            if reader.plain(hint) is str:
                most = reader.longest(hint)
                read_text = codec._FORMAT.reader(hint)
                if most.prose:
                    assert len(read_text("x" * 1_000_000)) == most.characters, (cls, name)
                else:
                    with pytest.raises(reader.Wrong):
                        read_text("x" * (most.characters + 1))
                assert most.characters <= 1 << 19


def test_the_name_of_a_message_is_in_its_first_bytes() -> None:
    for message in (HELLO, START, Report(Generation(1, 2), "running"), Ping(1)):
        assert name_at(encode(message)[:64]) == type(message).__name__
    for nonsense in (b"", b"\x81", b"\x93\xa7message", b"\x81\xa7message", b"\xde\x00\x15\xa7messag", b"\xff" * 64):
        assert name_at(nonsense) == ""
