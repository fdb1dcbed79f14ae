"""``lockbench check`` on whatever people may give it: a sentence that names file and line and exit
code 254, or a verdict; never a traceback, never a hang."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from lockbench.checker.analysis import Analysis
from lockbench.checker.calls import Calls
from lockbench.checker.check import check as judge_history
from lockbench.checker.intervals import ByKey
from lockbench.checker.kinds import MODELS, with_model
from lockbench.checker.load import load
from lockbench.evidence.check import check_files
from lockbench.history.jsonl import write_jsonl
from lockbench.history.op import F, Mode, Object, Type
from lockbench.history.recorder import Recorder
from lockbench.history.recording import write_ended, write_faults, write_meta
from lockbench.results.errors import BadInput
from perf.histories import Load, lock_history
from tests.checker.growth import exponent
from tests.checker.scenes import Scene
from tests.checker.test_planted import one_nanosecond, touching
from tests.command import lockbench


def judge(*files: Path, **more: object) -> int:
    options: dict[str, object] = {"model": None, "permits": None, "initial": None, "html": None}
    return check_files(files, json=True, **(options | more))  # type: ignore[arg-type]


def complaint(file: Path) -> str | None:
    """What a file is refused for, or None where it gets a verdict."""
    try:
        assert judge(file) in {0, 1, 2}
    except BadInput as error:
        return str(error)
    return None


def saved(path: Path, plant: Callable[[Scene], None]) -> Path:
    scene = Scene()
    plant(scene)
    write_jsonl(scene.history(), path)
    return path


def recording(folder: Path) -> Path:
    with closing(Recorder(folder, 1)) as recorder:
        for i in range(20):
            handle = recorder.invoke(1, F.ACQUIRE, "k0", hold=i)
            recorder.complete(handle, Type.OK)
            recorder.complete(recorder.invoke(1, F.RELEASE, "k0", hold=i), Type.OK)
    write_meta(folder, {"k0": Object()}, wall_minus_monotonic_ns=0)
    return folder


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_the_exit_code_is_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = (
        saved(tmp_path / "good.jsonl", touching),
        saved(tmp_path / "bad.jsonl", one_nanosecond),
    )
    empty = tmp_path / "empty.jsonl"
    empty.write_text("")
    for files, code, result in (
        ([good], 0, "valid"),
        ([bad], 1, "invalid"),
        ([empty], 2, "unknown"),
        ([good, bad], 1, "invalid"),
        ([good, empty], 2, "unknown"),
    ):
        assert judge(*files) == code
        document = printed(capsys)
        assert document["result"] == result
        assert {"operations", "grants", "verdicts", "measurements", "seconds"} <= set(document)


def test_a_run_folder_a_case_and_a_recording(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for case in ("a", "b"):
        recording(tmp_path / "run" / "cases" / case / "history")
        (tmp_path / "run" / "cases" / case / "case.json").write_text("{}")
    for place in ("run", "run/cases/a", "run/cases/a/history"):
        assert judge(tmp_path / place) == 0
    capsys.readouterr()
    judge(tmp_path / "run")
    assert printed(capsys)["operations"] == 80


def refused(s: Scene) -> None:
    s.acquire(1, 0, 1, "fail", error="held").acquire(2, 0, None, "info")
    s.release(2, 2, 3, "fail", error="not-held")


def refused_by_nobody(s: Scene) -> None:
    s.kind("mutex", strict_try=True).acquire(1, 0, 1, "fail", error="held")


def granted_once(s: Scene) -> None:
    refused(s)
    s.acquire(3, 4, 5).release(3, 6, 7)


@pytest.mark.parametrize(
    ("plant", "code"), [(refused, 2), (refused_by_nobody, 1), (granted_once, 0)]
)
def test_where_nothing_was_ever_granted_nothing_is_shown(
    tmp_path: Path, plant: Callable[[Scene], None], code: int
) -> None:
    assert judge(saved(tmp_path / "history.jsonl", plant)) == code


def test_a_run_that_was_cut_off_is_not_valid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    for case in ("done", "killed"):
        recording(run / "cases" / case / "history")
    (run / "cases" / "done" / "case.json").write_text("{}")
    (run / "ending").write_text("bench\n")
    for place, code in (
        ("cases/done", 0),
        ("cases/done/history", 0),
        ("cases/killed", 2),
        ("cases/killed/history", 2),
        (".", 2),
    ):
        assert judge(run / place) == code, place
        document = printed(capsys)
        assert document["result"] == ("valid" if code == 0 else "unknown")
        assert document.get("cut", False) is (code == 2)
    (run / "cases" / "killed" / "case.json").write_text("{}")
    assert judge(run) == 0
    (run / "ending").write_text("running\n")
    assert judge(run) == 2
    assert judge(run / "cases" / "done") == 0
    capsys.readouterr()
    check_files([run], model=None, permits=None, initial=None, json=False, html=None)
    said = capsys.readouterr().out
    assert "VALID" not in said
    assert said.count("cut off") == 2


def test_a_case_of_a_run_without_a_recording_is_unknown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cluster did not start, whether the bench lived to say so or not."""
    run = tmp_path / "run"
    recording(run / "cases" / "done" / "history")
    (run / "cases" / "done" / "case.json").write_text("{}")
    assert judge(run) == 0
    (run / "cases" / "none").mkdir()
    assert judge(run) == 2
    (run / "cases" / "none" / "case.json").write_text("{}")
    assert judge(run) == 2
    assert judge(run / "cases" / "done") == 0


def test_a_recording_says_itself_that_it_was_cut_off(tmp_path: Path) -> None:
    folder = recording(tmp_path / "recording")
    for ended, code in ((False, 2), (None, 0)):
        write_meta(folder, {"k0": Object()}, wall_minus_monotonic_ns=0, ended=ended)
        assert judge(folder) == code
    write_meta(folder, {"k0": Object()}, wall_minus_monotonic_ns=0, ended=False)
    # So does what is saved of it.
    for ending in ("edn", "jsonl"):
        assert judge(folder, write=tmp_path / f"h.{ending}") == 2
        assert judge(tmp_path / f"h.{ending}") == 2
    write_ended(folder)
    with pytest.raises(BadInput, match=r"faults\.jsonl: no such file"):
        judge(folder)
    write_faults(folder, [])
    assert judge(folder) == 0


def test_what_is_broken_in_a_recording_that_was_cut_off_is_broken(tmp_path: Path) -> None:
    whole = saved(tmp_path / "whole.jsonl", one_nanosecond)
    header, *lines = whole.read_text().splitlines()
    cut = tmp_path / "cut.jsonl"
    cut.write_text("\n".join([json.dumps({**json.loads(header), "ended": False}), *lines]))
    assert judge(cut) == 1


META = {"history": 1, "objects": {"k0": {}}, "epsilon_ns": 0, "wall_minus_monotonic_ns": 0}
FAULT = {"process": "nemesis", "f": "pause", "targets": ["a"], "begin_ns": [1, 2]}
DEEP = "[" * 100_000


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("meta.json", DEEP, "meta.json: "),
        ("meta.json", json.dumps(META)[:-1] + f', "x": {DEEP}', "meta.json: nested too deeply"),
        ("meta.json", META | {"epsilon_ns": -1}, "epsilon_ns: Expected int >= 0"),
        ("meta.json", META | {"epsilon_ns": float("inf")}, "malformed"),
        ("meta.json", json.dumps(META).replace("0,", "1e999,", 1), "epsilon_ns: "),
        ("meta.json", META | {"objects": {"k0": {"permits": "three"}}}, "permits: Expected int"),
        ("meta.json", META | {"objects": {"k0": {"kind": {}}}}, "kind: Expected str"),
        ("meta.json", META | {"objects": None, "history": 2}, "version 2"),
        ("meta.json", {"objects": {}}, "missing required field history"),
        ("meta.json", b"\xff", "UTF-8"),
        ("faults.jsonl", DEEP, "faults.jsonl:1: "),
        ("faults.jsonl", FAULT | {"begin_ns": [1, float("inf")]}, "faults.jsonl:1: JSON is malf"),
        ("faults.jsonl", FAULT | {"begin_ns": [1, 2**62]}, "begin_ns[1]: Expected int <="),
        ("faults.jsonl", FAULT | {"targets": ["\ud800"]}, "half of a surrogate pair"),
        ("faults.jsonl", FAULT | {"targets": None, "f": None}, "f: Expected str, got null"),
        ("faults.jsonl", '"colour"', "Expected object, got str"),
        ("0.strings", "null", "0.strings:1: Expected str, got null"),
        ("0.strings", "[]", "0.strings:1: Expected str, got array"),
        ("0.strings", DEEP, "0.strings:1: "),
        ("0.strings", '"\\ud800"', "0.strings:1: not text: half of a surrogate pair"),
        ("service.jsonl", DEEP, "service.jsonl:1: "),
        ("service.jsonl", {"service": 1, "record": "r", "quorum": "one"}, "quorum: Expected int"),
    ],
)
def test_a_field_of_a_recording_that_does_not_fit_is_named(
    tmp_path: Path, name: str, content: object, said: str
) -> None:
    folder = recording(tmp_path / "rec")
    (folder / "1.strings").rename(folder / "0.strings")
    (folder / "1.0.ops").rename(folder / "0.0.ops")
    assert complaint(folder) is None
    match content:
        case bytes():
            (folder / name).write_bytes(content)
        case str():
            (folder / name).write_text(content + "\n")
        case _:
            (folder / name).write_text(json.dumps(content) + "\n")
    message = complaint(folder)
    assert message is not None
    assert message.startswith(str(folder / name))
    assert said in message
    assert len(message) < 500


@pytest.mark.parametrize("name", ["meta.json", "1.0.ops", "1.strings", "faults.jsonl"])
@pytest.mark.parametrize("what", ["fifo", "/dev/zero", "/dev/urandom", "link", "folder"])
def test_a_file_of_a_recording_that_is_none_is_refused_at_once(
    tmp_path: Path, name: str, what: str
) -> None:
    folder = recording(tmp_path / "rec")
    outside = tmp_path / "outside"
    outside.write_text("")
    (folder / name).unlink(missing_ok=True)
    match what:
        case "fifo":
            os.mkfifo(folder / name)
        case "folder":
            (folder / name).mkdir()
        case _:
            (folder / name).symlink_to(outside if what == "link" else what)
    message = complaint(folder)
    assert message is not None
    # Without its meta.json a folder is no recording.
    assert ("neither a recording" if name == "meta.json" else name) in message


@pytest.mark.parametrize(
    "line",
    [
        "; lockbench {}",
        '; lockbench {"history": 1, "epsilon_ns": -1}',
        "; lockbench " + DEEP,
        '; lockbench-fault {"process": "nemesis", "f": "x"}',
        '{:type :invoke, :f :acquire, :process "\\ud800"}',
        "{:type :invoke, :f :acquire, :process \\ud800}",
    ],
)
def test_a_line_of_edn_that_does_not_fit_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "h.edn"
    path.write_text(f"; a history\n{line}\n")
    message = complaint(path)
    assert message is not None
    assert message.startswith(f"{path}:2: ")


def test_a_key_beyond_the_basic_plane_comes_back_from_edn(tmp_path: Path) -> None:
    def of_emoji(s: Scene) -> None:
        s.acquire(1, 0, 1, key="\U0001f512").release(1, 2, 3, key="\U0001f512")

    assert judge(saved(tmp_path / "h.jsonl", of_emoji), write=tmp_path / "h.edn") == 0
    assert load(tmp_path / "h.edn").keys == ("\U0001f512",)


def test_more_operations_than_the_bound_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, folder = saved(tmp_path / "h.jsonl", touching), recording(tmp_path / "rec")
    monkeypatch.setattr("lockbench.history.builder.OPERATIONS_MAX", 3)
    monkeypatch.setattr("lockbench.history.recording.OPERATIONS_MAX", 3)
    assert "more than 3 operations" in str(complaint(path))
    assert "more than 3 operations" in str(complaint(folder))


def test_standard_input_and_pipes_of_the_shell_are_read(tmp_path: Path) -> None:
    good, bad = (
        saved(tmp_path / "good.jsonl", touching),
        saved(tmp_path / "bad.jsonl", one_nanosecond),
    )
    script = "import sys; from lockbench.cli.main import main; sys.argv[0] = 'lockbench'; main()"
    for shell, code in (
        ('"$0" -c "$1" check - < "$3"', 1),
        ('cat "$3" | "$0" -c "$1" check /dev/stdin', 1),
        ('"$0" -c "$1" check <(cat "$2") <(cat "$3")', 1),
        ('"$0" -c "$1" check <(cat "$2")', 0),
    ):
        run = subprocess.run(
            ["bash", "-c", shell, sys.executable, script, str(good), str(bad)],
            capture_output=True, text=True, check=False, timeout=120,
        )  # fmt: skip
        assert run.returncode == code, (shell, run.stdout, run.stderr)


@pytest.mark.parametrize("name", ["nothing", "empty", "run"])
def test_what_is_no_history(tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "run" / "cases" / "a").mkdir(parents=True)
    with pytest.raises(BadInput, match=name):
        judge(tmp_path / name)


def test_damaged_recordings_are_named(tmp_path: Path) -> None:
    """Every file of a recording, cut short, overwritten with noise, or emptied."""
    dice = random.Random(1)
    read = refused = 0
    for number in range(120):
        folder = recording(tmp_path / str(number))
        victim = dice.choice(sorted(folder.iterdir()))
        data = bytearray(victim.read_bytes())
        kind = dice.randint(0, 2)
        if kind == 0:
            data = data[: dice.randint(0, len(data))]
        else:
            for _ in range(dice.randint(1, 40)):
                data[dice.randrange(len(data))] = dice.randrange(256)
        victim.write_bytes(data)
        message = complaint(folder)
        assert message is None or str(number) in message
        read += message is None
        refused += message is not None
    assert read > 0
    assert refused > 0


def test_random_damage_to_files(tmp_path: Path) -> None:
    dice = random.Random(2)
    whole = saved(tmp_path / "h.jsonl", one_nanosecond).read_bytes()
    for number in range(400):
        data = bytearray(whole)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(data))
            if dice.randint(0, 1):
                data[at] = dice.randrange(256)
            else:
                del data[at : at + dice.randint(1, 30)]
        path = tmp_path / f"{number}.{dice.choice(('jsonl', 'edn'))}"
        path.write_bytes(data)
        message = complaint(path)
        assert message is None or path.name in message


def test_overlapping_times_of_one_process_get_a_verdict(tmp_path: Path) -> None:
    def overlap(s: Scene) -> None:
        for i in range(8):
            s.acquire(1, i, i + 5, named=False).release(1, i + 0.5, i + 6, named=False)

    assert judge(saved(tmp_path / "h.jsonl", overlap)) in {0, 1, 2}


def many_keys(path: Path, keys: int) -> Path:
    """Each held once."""
    lines = [
        json.dumps(
            {"process": i % 9, "f": f, "key": f"k{i}", "type": "ok", "invoke_ns": 9 * i + at,
             "complete_ns": 9 * i + at + 1}
        )
        for i in range(keys)
        for f, at in (("acquire", 0), ("release", 5))
    ]  # fmt: skip
    path.write_text("\n".join(lines))
    return path


@pytest.mark.parametrize("model", MODELS)
def test_very_many_keys(tmp_path: Path, model: str) -> None:
    path = many_keys(tmp_path / "h.jsonl", 4000)
    assert judge(path, model=model) == 0


def test_what_one_key_costs_does_not_depend_on_the_others() -> None:
    """Four hundred keys out of ever more, as the checks of single keys ask for them."""

    def ask(keys: int) -> None:
        places, calls = prepared[keys]
        for key in range(0, keys, keys // 400):
            calls.key(key, "fenced", places[key])

    prepared = {}
    for keys in (4_000, 400_000):
        history = lock_history(Load(2 * keys, keys=keys, holds=True))
        prepared[keys] = ByKey(history.key), Calls(Analysis.of(history))
    assert exponent(ask, 4_000, 400_000) < 0.5


@pytest.mark.parametrize("ending", ["jsonl", "edn"])
def test_more_than_the_memory_holds_is_an_error(tmp_path: Path, ending: str) -> None:
    """In a process of its own, which is told that 40 MB are free."""
    path = tmp_path / f"h.{ending}"
    with path.open("w") as file:
        for i in range(300_000):
            fields = {"process": i, "key": f"key {i}", "f": "acquire"}
            if ending == "jsonl":
                line = json.dumps(fields | {"type": "info", "invoke_ns": i})
            else:
                line = f'{{:process {i}, :f :acquire, :type :invoke, :value ["key {i}" nil]}}'
            file.write(line + "\n")
    script = (
        "import sys; from lockbench.evidence import memory; memory.available = lambda: 40 << 20; "
        "from lockbench.cli.main import main; sys.argv[0] = 'lockbench'; main()"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, "check", str(path), "--json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 254, run.stderr
    assert "too large for the memory of this machine" in run.stderr + run.stdout
    assert path.name in run.stderr + run.stdout
    assert "Traceback" not in run.stderr


@pytest.mark.parametrize(
    "options",
    [{"model": "x"}, {"permits": 2}, {"initial": "3"}, {"model": "semaphore", "permits": -1}],
)
def test_arguments_that_do_not_fit(tmp_path: Path, options: dict[str, object]) -> None:
    with pytest.raises(BadInput, match="--"):
        judge(saved(tmp_path / "h.jsonl", touching), **options)


def test_a_drawing_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="--html"):
        judge(saved(tmp_path / "h.jsonl", one_nanosecond), html=tmp_path / "no" / "such.html")


@pytest.mark.parametrize("ending", ["edn", "jsonl"])
def test_a_history_is_saved_and_keeps_its_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], ending: str
) -> None:
    given = saved(tmp_path / "h.jsonl", one_nanosecond)
    target = tmp_path / f"out.{ending}"
    assert judge(given, write=target) == 1
    before = printed(capsys)
    assert judge(target) == 1
    after = printed(capsys)
    results = [
        {name: verdict["result"] for name, verdict in found["verdicts"].items()}  # type: ignore[attr-defined]
        for found in (before, after)
    ]
    assert results[0] == results[1]
    written = before["written"]
    assert isinstance(written, dict)
    assert set(written["kept"]) == set(results[0])
    assert written["lost"] == []
    # Its holds have leases, for which Jepsen has no field.
    assert written["elsewhere"] == ([] if ending == "edn" else None)


def test_what_other_tools_can_reach_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def without_a_lease(s: Scene) -> None:
        s.acquire(1, 0, 1).release(1, 2, 3)

    given = saved(tmp_path / "h.jsonl", without_a_lease)
    target = tmp_path / "h.edn"
    check_files(
        [given], model=None, permits=None, initial=None, html=None, json=False, write=target
    )
    said = capsys.readouterr().out.splitlines()[-1]
    assert "it keeps every verdict" in said
    assert "they can reach linearizable, not double-grant" in said


@pytest.mark.parametrize("name", ["h.jsonl", "out.txt", "no/such.edn"])
def test_a_history_that_cannot_be_saved_there(tmp_path: Path, name: str) -> None:
    given = saved(tmp_path / "h.jsonl", touching)
    before = given.read_bytes()
    with pytest.raises(BadInput, match="--write"):
        judge(given, write=tmp_path / name)
    assert given.read_bytes() == before


@pytest.mark.parametrize("name", ["b.jsonl", "out.jsonl"])
def test_a_drawing_does_not_take_the_place_of_a_history(tmp_path: Path, name: str) -> None:
    """Neither of one that is read nor of the one that is written."""
    given = [saved(tmp_path / file, touching) for file in ("a.jsonl", "b.jsonl")]
    before = [file.read_bytes() for file in given]
    both = {} if name == "b.jsonl" else {"write": tmp_path / name}
    with pytest.raises(BadInput, match="--html"):
        judge(*given[: 2 - len(both)], html=tmp_path / name, **both)
    assert [file.read_bytes() for file in given] == before


def test_several_histories_are_not_saved_as_one(tmp_path: Path) -> None:
    files = [saved(tmp_path / name, touching) for name in ("a.jsonl", "b.jsonl")]
    with pytest.raises(BadInput, match="one history can be written, not 2"):
        judge(*files, write=tmp_path / "out.edn")


@pytest.mark.parametrize(
    ("text", "operations"),
    [
        ("; a comment\n[ #op{:type :invoke :f :acquire :process 0}]", 1),
        ("{:type :invoke, :f :acquire, :process 0}\n", 1),
        ('{"process":0,"f":"acquire","key":"k","type":"info","invoke_ns":1}\n', 1),
    ],
)
def test_without_an_ending_the_beginning_tells_the_format(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, operations: int
) -> None:
    path = tmp_path / "history"
    path.write_text(text)
    judge(path)
    assert printed(capsys)["operations"] == operations


def test_the_command_itself(tmp_path: Path) -> None:
    """Through the entry point: codes, JSON alone on standard output, no traceback."""
    bad = saved(tmp_path / "bad.jsonl", one_nanosecond)
    noise = tmp_path / "noise.jsonl"
    noise.write_bytes(b"\x00\xff\n")
    drawing = tmp_path / "out.html"
    for arguments, code in (
        ([str(bad), "--json", "--html", str(drawing)], 1),
        ([str(noise), "--json"], 254),
        ([str(tmp_path / "none"), "--json"], 254),
        ([str(bad), "--model", "door", "--json"], 254),
    ):
        run = lockbench("check", *arguments)
        assert run.returncode == code, run.stderr
        assert isinstance(json.loads(run.stdout), dict)
        assert "Traceback" not in run.stderr
    assert "<svg" in drawing.read_text()


@pytest.mark.parametrize("model", ["read-write", "semaphore", "owner-mutex", "reentrant"])
def test_locks_that_are_never_released_do_not_take_quadratic_time(model: str) -> None:
    def run(operations: int) -> None:
        scene = Scene(key="k")
        for i in range(operations):
            scene.acquire(i, 2 * i, 2 * i + 1, mode=Mode.READ, named=False)
        report = judge_history(with_model(scene.history(), model))
        assert report.result == ("valid" if model == "read-write" else "invalid")

    assert exponent(run, 1_500, 12_000) < 1.6
