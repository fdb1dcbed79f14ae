"""Jepsen EDN: every way in which histories are written out there, ours and back, and nonsense."""

from __future__ import annotations

import random
import re
from dataclasses import replace
from pathlib import Path

import edn_format
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockbench.checker.check import check
from lockbench.checker.kinds import with_model
from lockbench.history.columns import History
from lockbench.history.edn import read_edn, write_edn
from lockbench.history.edn_forms import Comment, maps
from lockbench.history.guarded import Applied, Guarded
from lockbench.history.jsonl import read_jsonl, write_jsonl
from lockbench.history.lines import LINE_BYTES_MAX, UnreadableHistory
from lockbench.history.op import NULL, F, Mode, Object, Type
from lockbench.history.service import Service, Tenure
from tests.checker.growth import exponent
from tests.checker.random_histories import SHAPES, random_history
from tests.checker.scenes import S, Scene


def read(tmp_path: Path, text: str) -> History:
    path = tmp_path / "h.edn"
    path.write_text(text, encoding="utf-8")
    return read_edn(path)


LOCK = """\
{:type :invoke, :f :acquire, :process 0, :time 10, :index 0, :value nil}
{:type :ok, :f :acquire, :process 0, :time 20, :index 1, :value nil}
{:type :invoke, :f :acquire, :process 1, :time 21, :index 2}
{:type :invoke, :f :release, :process 0, :time 30, :index 3}
{:type :ok, :f :release, :process 0, :time 40, :index 4}
{:type :ok, :f :acquire, :process 1, :time 50, :index 5}
"""


def test_one_map_a_line(tmp_path: Path) -> None:
    history = read(tmp_path, LOCK)
    assert len(history) == 3
    assert history.f.tolist() == [F.ACQUIRE, F.ACQUIRE, F.RELEASE]
    assert history.invoke_ns.tolist() == [10, 21, 30]
    assert history.complete_ns.tolist() == [20, 50, 40]
    assert check(history).result == "valid"


@pytest.mark.parametrize(
    ("left", "right"), [("[", "]"), ("(", ")"), ("; a comment\n[\n", "\n] ;x")]
)
def test_one_enclosing_form(tmp_path: Path, left: str, right: str) -> None:
    assert len(read(tmp_path, left + LOCK + right)) == 3


def test_strings_for_keywords_odd_processes_and_errors(tmp_path: Path) -> None:
    history = read(
        tmp_path,
        """
        {"type" "invoke", "f" "acquire", "process" "worker 1"}
        {:type :fail :f "acquire" :process "worker 1" :error [:held "by x"]}
        {:type :invoke :f :release :process :seven :value nil}
        {:type :fail :f :release :process :seven :error {:code :timeout}}
        {:type :invoke :f :release :process 7.5}
        {:type :fail :process 7.5 :error "not-held: gone"}
        """,
    )
    assert [history.process_name(int(p)) for p in history.process] == ["worker 1", "seven", "7.5"]
    assert [history.errors[e] for e in history.error] == [
        "held by x",
        "code timeout",
        "not-held: gone",
    ]


def test_without_times_the_order_of_the_file_counts(tmp_path: Path) -> None:
    history = read(tmp_path, "{:type :invoke :f :acquire :process 0} {:type :ok :process 0}")
    assert history.invoke_ns.tolist() == [1]
    assert history.complete_ns.tolist() == [2]


def test_missing_completions_are_unknown(tmp_path: Path) -> None:
    history = read(tmp_path, "{:type :invoke :f :acquire :process 0 :time 5}")
    assert history.type.tolist() == [Type.INFO]
    assert history.complete_ns.tolist() == [NULL]


def test_several_keys_tags_records_and_discards(tmp_path: Path) -> None:
    history = read(
        tmp_path,
        """
        #jepsen.history.Op{:type :invoke :f :write :process 0 :value [:x 3] #_ :junk #_ [1 2]}
        #jepsen.history.Op{:type :ok :f :write :process 0 :value #tuple [:x 3] :at #inst "2020"}
        {:type :invoke :f :cas :process 0 :value ["y" [3 4]]} {:type :ok :process 0 :f :cas}
        {:type :invoke :f :read :process 0 :value [5 nil]}
        {:type :ok :f :read :process 0 :value [5 -7N]}
        """,
    )
    assert history.keys == ("x", "y", "5")
    assert history.value.tolist() == [3, 4, -7]
    assert history.old.tolist() == [NULL, 3, NULL]


def test_a_vector_that_is_discarded_has_no_operations(tmp_path: Path) -> None:
    maps_ = "{:type :invoke :f :acquire :process 0 :time 1} {:type :ok :process 0 :time 2}"
    kept = "{:type :invoke :f :acquire :process 1 :time 3}\n"
    assert read(tmp_path, f"#_ [{maps_}]\n{kept}").process.tolist() == [1]
    assert read(tmp_path, f"#_ {{:a 1}} [{maps_}]\n").process.tolist() == [0]


def test_nemesis_events_become_faults(tmp_path: Path) -> None:
    history = read(
        tmp_path,
        """
        {:type :info :f :start-partition :process :nemesis :time 5 :value :majority}
        {:type :info :f :start-partition :process :nemesis :time 7}
        {:type :info :f :stop-partition :process :nemesis :time 9}
        {:type :info :f :start :process :nemesis :time 12}
        """,
    )
    found = [(fault.name, fault.begin_ns[0], fault.heal_ns) for fault in history.faults]
    assert found == [("partition", 5, (9, 9)), ("fault", 12, None)]


def test_a_read_of_nothing_matches_any_state(tmp_path: Path) -> None:
    text = (
        "{:type :invoke :f :read :process 0 :value nil} {:type :ok :f :read :process 0 :value %s}"
    )
    for value, initial, result in (
        ("nil", None, "valid"),
        ("3", "3", "valid"),
        ("3", "4", "invalid"),
    ):
        history = with_model(read(tmp_path, text % value), "register", initial=initial)
        assert check(history).verdicts["linearizable"].result == result


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("{:type :ok :f :acquire :process 0}", ":1:", "completes what it never invoked"),
        (
            "{:type :invoke :f :acquire :process 0}\n" * 2,
            ":2:",
            "invokes again before it completed",
        ),
        ("{:type :invoke :f :grab :process 0}", ":1:", "unknown :f 'grab'"),
        ("{:type :odd :f :acquire :process 0}", ":1:", "unknown :type 'odd'"),
        ("{:type :invoke :f :acquire}", ":1:", "no :process"),
        (LOCK.replace(":index 4", ":index 3"), ":5:", ":index 3 after 3"),
        (LOCK.replace(":time 20", ":time 9"), ":2:", "completes at 9, before 10"),
        (LOCK.replace(":time 20", ":time ##NaN"), ":2:", "##NaN is not a number"),
        (LOCK.replace(":time 20", ":time 1e400"), ":2:", "not a whole number"),
        (LOCK.replace(":time 20", ""), ":2:", "some have none"),
        (LOCK.replace(":time 20", ":time 99999999999999999999"), ":2:", "out of range"),
        (LOCK[:-5], ":6:", "is never closed"),
        (LOCK[:-2], ":6:", "is never closed"),
        ("[" * 100, ":1:", "nested too deeply"),
        ("{:a}", ":1:", "a key but no value"),
        ("}", ":1:", "closes nothing"),
        ("[{:a 1)]", ":1:", "closes nothing"),
        ('{:type "', ":1:", "a string that never ends"),
        ('"\n' * 300, "", "neither a map nor"),
        ('{"' + "\n" * 300, ":101:", "a string over more than 100 lines"),
        ("17", ":1:", "neither a map nor a list of maps"),
        ("{:a #_}", ":1:", "#_ before a closing bracket"),
        ("{:type :invoke :f :cas :process 0 :value 3}", ":1:", "not [old new]"),
    ],
)
def test_whatever_is_wrong_is_named_with_its_line(
    tmp_path: Path, text: str, place: str, said: str
) -> None:
    with pytest.raises(UnreadableHistory) as raised:
        read(tmp_path, text)
    assert place in str(raised.value)
    assert said in str(raised.value)


@pytest.mark.parametrize("noise", [b"\xff\x00\x13", b'{:type "\xff"}', bytes(range(256)) * 50])
def test_binary_noise(tmp_path: Path, noise: bytes) -> None:
    path = tmp_path / "noise.edn"
    path.write_bytes(noise)
    with pytest.raises(UnreadableHistory, match=r"noise\.edn:"):
        read_edn(path)


@pytest.mark.random
@given(st.text(alphabet='{}[]()#_:;"\\ \nainvokeftyprcsldu019.N', max_size=60))
def test_any_text_is_read_or_refused(tmp_path: Path, text: str) -> None:
    try:
        read(tmp_path, text)
    except UnreadableHistory as error:
        message = str(error)
    else:
        message = "h.edn:"
    assert "h.edn:" in message


FORMS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.integers(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.random
@given(st.dictionaries(st.text(max_size=5), FORMS, max_size=4))
def test_agrees_with_edn_format(value: dict[str, object]) -> None:
    text = edn_format.dumps(value)
    assert [found for _, found in maps([text])] == [value]


def test_comments_are_handed_out() -> None:
    assert list(maps(["; hello\n"])) == [(1, Comment("; hello\n"))]


@pytest.mark.parametrize("shape", SHAPES)
def test_ours_to_edn_and_back_keeps_every_verdict(tmp_path: Path, shape: str) -> None:
    dice = random.Random(shape)
    for number in range(25):
        history = random_history(dice, SHAPES[shape])
        path = tmp_path / f"{number}.edn"
        write_edn(history, path)
        again = read_edn(path)
        before, after = check(history), check(again)
        assert {n: v.result for n, v in before.verdicts.items()} == {
            n: v.result for n, v in after.verdicts.items()
        }
        assert before.grants == after.grants


def test_several_keys_are_written_as_jepsen_writes_them(tmp_path: Path) -> None:
    scene = Scene(key="a").acquire(1, 0, 1).release(1, 2, 3).acquire(2, 1, 2, key="b")
    write_edn(scene.history(), tmp_path / "h.edn")
    ours = (tmp_path / "h.edn").read_text()
    assert ':value ["b" nil]' in ours
    # What another tool sees: without our keys, two locks that are each held once.
    plain = re.sub(r", :lockbench/\w+ (\"[^\"]*\"|\S+?)(?=[,}])", "", ours)
    assert ":lockbench" not in plain
    again = read(tmp_path, plain)
    assert sorted(again.keys) == ["a", "b"]
    assert check(again).result == "valid"


def test_a_read_whose_reply_was_lost_keeps_what_it_found(tmp_path: Path) -> None:
    scene = Scene().acquire(1, 0, 1, until=5).write(1, 1, 0, 1)
    scene.op(F.READ, 1, 2, None, "info", applied_ns=2_500_000_000, value=0)
    history = scene.history()
    assert check(history).verdicts["lost-update"].result == "invalid"
    write_edn(history, tmp_path / "h.edn")
    assert check(read_edn(tmp_path / "h.edn")).verdicts["lost-update"].result == "invalid"


def test_everything_that_a_verdict_needs_comes_back(tmp_path: Path) -> None:
    scene = Scene().kind("read-write", role="contended").epsilon(0.25)
    scene.acquire("me", 0, 1, until=5, fence=3, mode=Mode.READ, hold="a9")
    scene.write("me", 1.5, 0, 1, hold="a9").fault("kill", 2, 3, "proven", proven=True)
    history = scene.history()
    write_edn(history, tmp_path / "h.edn")
    again = read_edn(tmp_path / "h.edn")
    for name in ("hold", "fence", "valid_until_ns", "mode", "applied_ns", "version", "value"):
        assert getattr(again, name).tolist() == getattr(history, name).tolist(), name
    assert again.objects == history.objects
    assert again.faults == history.faults
    assert again.epsilon_ns == history.epsilon_ns
    assert again.process_name(int(again.process[0])) == "me"


def test_reading_grows_with_the_file_and_no_faster(tmp_path: Path) -> None:
    def run(operations: int) -> None:
        lines: list[str] = []
        for i in range(operations // 2):
            p, t = i % 5, 40 * i
            for f, at in (("acquire", 0), ("release", 20)):
                head = f":f :{f}, :process {p}, :value nil"
                lines.append(f"{{:type :invoke, {head}, :time {t + at}, :index {len(lines)}}}\n")
                lines.append(f"{{:type :ok, {head}, :time {t + at + 9}, :index {len(lines)}}}\n")
        history = read(tmp_path, "".join(lines))
        assert len(history) == operations
        assert check(history).result == "valid"

    assert exponent(run, 1_000, 10_000) < 1.4


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("suffix", ["edn", "jsonl"])
def test_an_acquire_that_ended_in_an_error_is_not_still_under_way(
    tmp_path: Path, suffix: str, refused: bool
) -> None:
    """So what is left of it may be judged: ``leaked-lock``."""
    scene = Scene()
    for key in ("k0", "spare"):
        scene.kind("mutex", key, lease_ns=3 * S, slack_ns=2 * S)
    scene.acquire(1, 1, None, "info", error="timeout: no answer", hold="a")
    scene.op(F.QUIET, 2, 20, 20, named=False)
    if refused:
        scene.acquire(2, 40, 41, "fail", error="held", hold="b")
    else:
        scene.acquire(2, 40, 41, until=44, hold="b").release(2, 42, 43, hold="b")
    scene.acquire(2, 44, 45, until=48, key="spare", hold="c").release(2, 46, 47, key="spare")
    history = scene.history()
    path = tmp_path / f"h.{suffix}"
    (write_edn if suffix == "edn" else write_jsonl)(history, path)
    again = (read_edn if suffix == "edn" else read_jsonl)(path)
    found = [check(one).verdicts["leaked-lock"].result for one in (history, again)]
    assert found == ["invalid" if refused else "valid"] * 2


@pytest.mark.parametrize("suffix", ["edn", "jsonl"])
def test_what_stands_beside_a_history_comes_back(tmp_path: Path, suffix: str) -> None:
    scene = Scene()
    for number in (1, 2):
        window = (number, number + 0.001)
        scene.op(
            F.WRITE, number, *window, hold=f"a{number}", version=number - 1, value=number, fence=1
        )
    applied = tuple(Applied("k0", n, 0xA0 + n, n, n - 1, 1) for n in (1, 2))
    guarded = Guarded("postgres", "fence", "newer", "its rows", applied)
    tenure = Tenure("etcd", "k0", 31, 7, 9, 12, "deleted", None)
    objects = {f"k{n}": Object("mutex", role="own") for n in range(6000)}
    history = replace(
        scene.history(),
        guarded=guarded,
        service=Service("etcd's revisions", 1, None, (tenure,)),
        objects={**scene.history().objects, **objects},
    )
    path = tmp_path / f"h.{suffix}"
    (write_edn if suffix == "edn" else write_jsonl)(history, path)
    assert max(map(len, path.read_bytes().splitlines())) < LINE_BYTES_MAX / 4
    again = (read_edn if suffix == "edn" else read_jsonl)(path)
    assert (again.guarded, again.service) == (history.guarded, history.service)
    assert again.objects == history.objects
    assert check(again).verdicts["broken-guard"].result == "invalid"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"record": "guarded", "line": {"guarded": 2}}', "guarded"),
        ('{"record": "service", "line": {"key": 3}}', "service"),
        ('{"record": "header", "line": {"history": 7}}', "version 7"),
        ('{"record": "other", "line": {}}', "other"),
        ('{"record": "guarded"}', "line"),
    ],
)
def test_a_record_that_nobody_writes_is_refused(tmp_path: Path, line: str, said: str) -> None:
    for name, text in (("h.jsonl", line), ("h.edn", f"; lockbench-record {line}")):
        (tmp_path / name).write_text(f"{text}\n")
        with pytest.raises(UnreadableHistory, match=said):
            (read_jsonl if name == "h.jsonl" else read_edn)(tmp_path / name)
