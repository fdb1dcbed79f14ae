"""What a service reports of its section: defects are told, their innocent neighbours are not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import count
from pathlib import Path

import pytest

from lockbench import BadInput, BrokenPromise, Recording, Undecided, exclusive, judge, record
from lockbench.api.judging import broken_promise, decide, undecided
from lockbench.history.jsonl import read_jsonl
from lockbench.history.op import Fault
from tests.eventually import eventually
from tests.results.made_run import record as record_phases

HOLD_S = 0.005


@pytest.fixture
def section() -> Iterator[Recording]:
    with record() as made:
        yield made


def workers(work: Callable[[], None], count: int = 3) -> None:
    threads = [threading.Thread(target=work, name=f"worker-{i}") for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def played(lock: AbstractContextManager[object], *, meet: bool = False) -> Recording:
    """Three threads, each twice in the section, under a lock that is one or is none. ``meet``:
    they wait for each other inside."""
    together, inside = threading.Barrier(3), threading.Barrier(3)

    def work() -> None:
        together.wait()
        for attempt in range(2):
            with lock, made.inside("orders"):
                if meet and attempt == 0:
                    inside.wait()
                time.sleep(HOLD_S)

    with record() as made:
        workers(work)
    return made


@pytest.mark.parametrize("_", range(20))
def test_a_section_without_a_lock_is_told_every_time(_: int) -> None:
    with pytest.raises(BrokenPromise, match="more than one holder inside at once") as told:
        decide(played(nullcontext(), meet=True))
    assert "worker-" in str(told.value)
    assert "█" in str(told.value)
    assert "<svg" in told.value.drawing


@pytest.mark.parametrize("_", range(20))
def test_with_a_lock_it_is_never_told(_: int) -> None:
    decide(played(threading.Lock()))


def test_as_many_as_are_admitted_and_one_more() -> None:
    together = threading.Barrier(3)

    def work() -> None:
        with made.inside():
            together.wait()

    with record(at_most=3) as made:
        workers(work)
    assert broken_promise(made) is None
    assert "and the section admits 3" in (undecided(made) or "")
    with pytest.raises(BrokenPromise, match="more than 2 holders"), exclusive(at_most=2) as made:
        workers(work)
    with exclusive(at_most=2) as made:
        workers(lambda: made.leave(made.enter()))


def test_the_tasks_of_an_event_loop_are_told_apart() -> None:
    async def use(section: Recording, lock: AbstractContextManager[object] | asyncio.Lock) -> None:
        async with lock if isinstance(lock, asyncio.Lock) else nullcontext():
            with section.inside("orders"):
                await asyncio.sleep(HOLD_S)

    async def all_of_them(lock: asyncio.Lock | AbstractContextManager[object]) -> None:
        with exclusive() as section:
            await asyncio.gather(*(use(section, lock) for _ in range(3)))

    asyncio.run(all_of_them(asyncio.Lock()))
    with pytest.raises(BrokenPromise, match="Task-"):
        asyncio.run(all_of_them(nullcontext()))


# --- lines ---

OVERLAP = ["enter k a", "enter k b", "leave k a", "leave k b"]
IN_TURN = ["enter k a", "leave k a", "enter k b", "leave k b"]


def told(lines: list[str], section: Recording) -> BrokenPromise | None:
    os.write(section.pipe(), "".join(f"{line}\n" for line in lines).encode())
    section.close()
    return broken_promise(section)


def test_lines_are_judged_by_their_order_however_late_they_are_read(section: Recording) -> None:
    assert told(OVERLAP, section) is not None


def test_lines_that_are_read_at_once_accuse_nobody(section: Recording) -> None:
    assert told(IN_TURN, section) is None
    assert undecided(section) is None
    assert len(section.stays) == 4 / 2


def test_times_in_the_lines_count_more_than_their_order(section: Recording) -> None:
    t = time.monotonic_ns()
    late = [f"enter k a at={t}", f"enter k b at={t + 20}", f"leave k a at={t + 10}"]
    assert told([*late, f"leave k b at={t + 30}"], section) is None
    assert undecided(section) is None


def test_times_in_the_lines_tell_an_overlap_that_their_order_hides(section: Recording) -> None:
    t = time.monotonic_ns()
    lines = [f"enter k a at={t}", f"leave k a at={t + 20}", f"enter k b at={t + 10}"]
    assert told([*lines, f"leave k b at={t + 30}"], section) is not None


def test_lines_that_a_file_gets_are_followed(section: Recording, tmp_path: Path) -> None:
    file = tmp_path / "section.log"
    file.write_text("enter k before\n")
    section.follow(file)
    with file.open("a") as writer:
        writer.write("\n".join(OVERLAP) + "\n")
    eventually(lambda: len(section.stays) == 2)
    assert broken_promise(section) is not None


def test_what_is_no_regular_file_is_not_waited_for(section: Recording, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "section.log")
    with pytest.raises(BadInput, match="is not a regular file"):
        section.follow(tmp_path / "section.log")


def test_a_file_that_cannot_be_read_is_a_sentence(section: Recording, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be read: No such file"):
        section.follow(tmp_path / "none" / "section.log")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("hello", "a report is `enter KEY WHO"),
        ("enter k", "a report is `enter KEY WHO"),
        ("enter k a soon", "a report is `enter KEY WHO"),
        ("leave k a", "a leaves k without having entered it"),
        ("enter k a at=5", "no time of CLOCK_MONOTONIC since the recording began"),
        ("enter k a at=x", "at=x is no number"),
        ("enter k a pid=1", "no process that could be inside"),
        ("enter k " + "a" * 5000, "a report is `enter KEY WHO"),
    ],
)
def test_a_line_that_makes_no_sense_leaves_it_undecided(
    section: Recording, line: str, said: str
) -> None:
    assert told([*IN_TURN, line], section) is None
    assert said in (undecided(section) or "")


def test_a_name_that_two_holders_share_leaves_it_undecided(section: Recording) -> None:
    assert told(["enter k a", "enter k a"], section) is None
    assert "enters k a second time" in (undecided(section) or "")


def test_a_leave_that_is_read_late_accuses_nobody_who_reports_elsewhere(
    section: Recording,
) -> None:
    section._looked_ns = time.monotonic_ns()
    with section._lock:  # nobody looks
        pipe = section.pipe()
        os.write(pipe, b"enter k a\n")
        section._look_once()
        os.write(pipe, b"leave k a\n")
        with section.inside("k", "b"):
            section._look_once()
    section.close()
    assert broken_promise(section) is None
    assert undecided(section) is None


def test_who_was_still_inside_when_another_came_from_elsewhere_is_told(section: Recording) -> None:
    pipe = section.pipe()
    os.write(pipe, b"enter k a\n")
    eventually(lambda: len(section.stays) == 1)
    with section.inside("k", "b"):
        section._look_once()
        section._look_once()  # neither has left by now
    os.write(pipe, b"leave k a\n")
    section.close()
    assert broken_promise(section) is not None


# --- HTTP ---


def post(url: str, path: str) -> int:
    with urllib.request.urlopen(f"{url}/{path}", data=b"") as answer:
        status: int = answer.status
    return status


def test_another_language_reports_over_http(section: Recording) -> None:
    url = section.environment["LOCKBENCH_SECTION"]
    assert url == section.url
    for line in IN_TURN:
        word, key, who = line.split()
        assert post(url, f"{word}?key={key}&who={who}") == 204
    decide(section)
    post(url, "enter?key=k&who=a")
    post(url, "enter?key=k&who=b")
    assert broken_promise(section) is None  # of two that may have died, nothing is known
    post(url, "leave?key=k&who=a")
    post(url, "leave?key=k&who=b")
    assert broken_promise(section) is not None


def test_a_report_that_makes_no_sense_is_refused(section: Recording) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(section.url, "leave?key=k&who=a")
    assert refused.value.code == 400
    assert "without having entered" in refused.value.read().decode()
    assert section.troubles


def test_a_process_that_is_not_there_cannot_wait_for_an_answer(section: Recording) -> None:
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(section.url, "enter?key=k&who=a&pid=999999999")
    assert "not a container's own" in refused.value.read().decode()


def test_who_does_not_know_the_address_cannot_report(section: Recording) -> None:
    with pytest.raises(urllib.error.HTTPError):
        post(section.url.rpartition("/")[0] + "/0", "enter?key=k&who=a")
    assert section.stays == []


# --- holders that die, and holders that sleep ---

HOLDER = """
import os, sys, time
os.write(int(sys.argv[1]), f"enter k holder pid={os.getpid()}\\n".encode())
time.sleep(60)
"""


@pytest.fixture
def holder(section: Recording) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is inside and does not leave."""
    pipe = section.pipe()
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(pipe)], pass_fds=[pipe]) as process:
        eventually(lambda: len(section.stays) == 1)
        yield process
        process.kill()


def successor(section: Recording) -> None:
    """Somebody else comes in, whose times are known."""
    now = time.monotonic_ns()
    section.report("enter", {"key": "k", "who": "other", "at": str(now)}, "a pipe")
    section.report("leave", {"key": "k", "who": "other", "at": str(time.monotonic_ns())}, "a pipe")


def test_a_holder_that_died_holds_nothing(
    section: Recording, holder: subprocess.Popen[bytes]
) -> None:
    holder.kill()
    holder.wait()
    successor(section)
    assert broken_promise(section) is None


@pytest.mark.parametrize("_", range(20))
def test_a_holder_that_sleeps_is_inside(_: int) -> None:
    with record() as section:
        pipe = section.pipe()
        words = [sys.executable, "-S", "-c", HOLDER, str(pipe)]
        with subprocess.Popen(words, pass_fds=[pipe]) as process:
            eventually(lambda: len(section.stays) == 1)
            process.send_signal(signal.SIGSTOP)
            successor(section)
            section.close()
            process.kill()
    assert broken_promise(section) is not None


def test_it_is_no_longer_inside_once_it_has_left_and_sleeps(section: Recording) -> None:
    pipe = section.pipe()
    script = HOLDER.replace(
        "time.sleep", 'os.write(int(sys.argv[1]), b"leave k holder\\n"); time.sleep'
    )
    with subprocess.Popen([sys.executable, "-c", script, str(pipe)], pass_fds=[pipe]) as process:
        eventually(lambda: [stay.left_ns is not None for stay in section.stays] == [True])
        process.send_signal(signal.SIGSTOP)
        successor(section)
        section.close()
        process.kill()
    assert broken_promise(section) is None


@pytest.mark.parametrize("killed", [False, True], ids=["forgotten", "killed"])
def test_a_stay_that_nobody_left_ends_no_other_of_the_same_holder(
    section: Recording, holder: subprocess.Popen[bytes], *, killed: bool
) -> None:
    pipe = section._sources[0]._files[1]
    pid = f" pid={holder.pid}" if killed else ""
    lines = f"enter orders a\nenter audit a{pid}\n"
    os.write(pipe, lines.encode())
    eventually(lambda: len(section.stays) == 3)
    if killed:
        holder.kill()
        holder.wait()
    os.write(pipe, b"enter orders b\nleave orders b\nleave orders a\n")
    section.close()
    assert broken_promise(section) is not None


@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("pid", ["", " pid=4000001"])  # a number that nobody has here
def test_stays_of_which_nothing_is_known_are_not_green(
    section: Recording, *, left: bool, pid: str
) -> None:
    lines = [line for who in ("a", "b") for line in (f"enter k {who}{pid}", f"leave k {who}")]
    found = told(lines if left else lines[::2], section)
    assert found is None
    said = undecided(section)
    assert said is None if left else "entered k and never left" in (said or "")


def test_who_is_still_inside_without_a_process_is_named(section: Recording) -> None:
    assert told(["enter k a", "leave k a", "enter k b"], section) is None
    assert "only a entered" in (undecided(section) or "")
    assert "how long b stayed is not known" in (undecided(section) or "")


@pytest.mark.parametrize("how", ["truncated", "replaced", "appended"])
def test_a_file_that_is_cut_while_it_is_followed_is_not_green(
    section: Recording, tmp_path: Path, how: str
) -> None:
    file = tmp_path / "log"
    section.follow(file)
    with file.open("a") as log:
        log.write("enter k a\nleave k a\nenter k b\nleave k b\n")
    eventually(lambda: len(section.stays) == 2)
    if how == "replaced":
        file.rename(tmp_path / "log.1")
    with file.open("a" if how == "appended" else "w") as log:
        log.write("enter k c\n")
    section.close()
    assert broken_promise(section) is None
    said = undecided(section)
    assert said is None if how == "appended" else f"it was {how}" in (said or "")


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_last_line_without_its_end_is_not_green(
    section: Recording, tmp_path: Path, end: str
) -> None:
    section.follow(tmp_path / "log")
    (tmp_path / "log").write_text(f"enter k a\nleave k a\nenter k b\nleave k b{end}")
    section.close()
    assert broken_promise(section) is None
    assert bool(section.troubles) is not bool(end)


def test_who_was_killed_and_comes_back_may_enter_again(
    section: Recording, holder: subprocess.Popen[bytes]
) -> None:
    holder.kill()
    holder.wait()
    os.write(section._sources[0]._files[1], b"enter k holder\nleave k holder\n")
    section.close()
    assert section.troubles == []
    assert broken_promise(section) is None


# --- unknown is never green ---


def test_nothing_recorded_is_not_green() -> None:
    with pytest.raises(Undecided, match="nobody entered the section"), exclusive():
        pass


def test_one_holder_alone_is_not_green() -> None:
    with record() as section:
        for _ in range(2):
            section.leave(section.enter("k", "a"))
    with pytest.raises(Undecided, match="nobody could have met another: only a"):
        decide(section)


class Struck:
    """Stands for a cluster that met one fault."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def strike(self, *, proven: bool = True) -> None:
        now = time.monotonic_ns()
        facts = {"proven": proven}
        self.faults.append(Fault("pause", ("redis-1",), (now, now), (now, now), (), facts))


@pytest.mark.parametrize(
    ("before", "after", "proven", "said"),
    [
        (True, True, True, None),
        (False, True, True, "pause of redis-1 was not met: nobody entered before it"),
        (True, False, True, "pause of redis-1 was not met: nobody entered after it began"),
        (True, True, False, "pause of redis-1 is not proven"),
    ],
)
def test_a_fault_that_met_nobody_is_not_green(
    before: bool, after: bool, proven: bool, said: str | None
) -> None:
    cluster = Struck()
    section = Recording(cluster)  # type: ignore[arg-type]

    def two() -> None:
        for who in ("a", "b"):
            section.leave(section.enter("k", who))

    if before:
        two()
    cluster.strike(proven=proven)
    if after:
        two()
    found = undecided(section)
    assert found is None if said is None else said in (found or "")


def test_what_the_block_raised_goes_on_with_a_note() -> None:
    def fail() -> None:
        with exclusive() as section:
            for who in ("a", "b"):
                section.enter("k", who)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as raised:
        fail()
    assert "more than one holder" in raised.value.__notes__[0]


def test_who_enters_again_is_no_second_holder(section: Recording) -> None:
    """A reentrant lock lets its holder in twice; another thread of the same name it does not."""
    with section.inside("k"), section.inside("k"):
        pass
    assert broken_promise(section) is None
    assert "a second time without having left" in (undecided(section) or "")


def test_another_thread_of_the_same_name_is_a_second_holder(section: Recording) -> None:
    with section.inside("k", "w"):
        other = threading.Thread(target=lambda: section.leave(section.enter("k", "w")))
        other.start()
        other.join()
    assert broken_promise(section) is not None


def test_one_waits_for_those_who_enter_and_not_for_ever(section: Recording) -> None:
    section.enter("k", "a")
    over = threading.Event()

    def enter_again_and_again() -> None:
        for number in count():
            section.enter("k", f"b{number}")
            if over.wait(0.02):
                return

    thread = threading.Thread(target=enter_again_and_again)
    thread.start()
    before = len(section.stays)
    section.wait_for()
    assert len(section.stays) > before
    over.set()
    thread.join()
    with pytest.raises(Undecided, match="fewer than 1 entered the section within 0 s"):
        section.wait_for(timeout_s=0)


# --- files ---


def test_it_is_saved_as_check_reads_it(section: Recording, tmp_path: Path) -> None:
    told(OVERLAP, section)
    section.save(tmp_path / "history.jsonl")
    assert judge(tmp_path / "history.jsonl").result == "invalid"
    assert judge(section.history()).result == "invalid"
    assert len(read_jsonl(tmp_path / "history.jsonl")) == 4


@pytest.mark.parametrize(("ending", "result"), [("ok", "valid"), ("running", "unknown")])
def test_a_recording_that_was_cut_off_is_judged_as_check_does(
    tmp_path: Path, ending: str, result: str
) -> None:
    case = tmp_path / "cases" / "01-x-none"
    (case / "history").mkdir(parents=True)
    (tmp_path / "ending").write_text(ending)
    (case / "case.json").write_text("{}")
    record_phases(case / "history", 40, faulty=False)
    assert judge(tmp_path).result == result


def test_what_is_no_history_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text("hello\n")
    with pytest.raises(BadInput, match=r"x\.jsonl"):
        judge(tmp_path / "x.jsonl")
