"""The track record: its histories are judged for ever, and a page that says otherwise is found."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from bench.plan import make_case
from checker.check import check
from evidence import excerpt as cutting
from evidence import track
from evidence.dead_holder import DeadHolder
from evidence.track import FOLDER, INDEX, BadPage, Page, pages
from history.jsonl import read_jsonl
from history.op import NULL, F
from results.errors import BadInput
from tests.results.made_run import make_run

PAGES = pages()
ID = "redis-no-owner"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
def test_a_page_says_what_the_checker_says(page: Page) -> None:
    assert track.misjudged(page) == []
    text = (FOLDER / f"{page.id}.md").read_text()
    assert track.with_quotation(text, track.quotation(page)) == text, (
        "the quotation is old: python -m evidence.track write"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
def test_the_command_of_a_page_can_be_given(page: Page) -> None:
    """A command of ours names a lock and a fault that exist, and that fit; a script parses."""
    words = page.command.split()
    if words[:2] == ["lockbench", "run"]:
        given = dict(zip(words[2::2], words[3::2], strict=True))
        for lock in given["--lock"].split(","):
            make_case(lock, given["--fault"], seed=0, topology=given.get("--topology"))
    elif words[:2] == ["python", "-m"]:
        assert (FOLDER.parents[1] / f"{words[2].replace('.', '/')}.py").is_file()
    else:
        assert any(word.endswith(f"/{page.script}") for word in words)
    if page.script:
        ast.parse((FOLDER / page.script).read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
def test_a_history_is_small_and_its_times_are_relative(page: Page) -> None:
    for name in page.histories:
        history = read_jsonl(FOLDER / name)
        assert len(history) <= cutting.OPERATIONS_MAX
        assert history.invoke_ns[0] == 0
        assert (history.hold[history.f == F.ACQUIRE] != NULL).all()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
def test_a_source_has_an_address(page: Page) -> None:
    assert "https://" in page.source


def test_the_index_is_complete() -> None:
    text = (FOLDER / INDEX).read_text()
    assert track.with_list(text, PAGES) == text, "the index is old: python -m evidence.track write"


def test_every_file_belongs_to_a_page() -> None:
    named = {name for p in PAGES for name in (*p.histories, f"{p.id}.md", p.script)}
    there = {path.name for path in FOLDER.iterdir() if path.is_file()}
    assert there - named <= {INDEX, track.SHARED, "ruff.toml"}


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """One page with its history, to be spoilt."""
    for name in (f"{ID}.md", f"{ID}.jsonl"):
        shutil.copy(FOLDER / name, tmp_path / name)
    shutil.copy(FOLDER / INDEX, tmp_path / INDEX)
    return tmp_path


def spoil(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_wrong_verdict_is_found(copy: Path) -> None:
    spoil(copy / f"{ID}.md", '= "wrong-release" }', '= "late-grant" }')
    (page,) = pages(copy)
    assert track.misjudged(page, copy) == [
        f"{ID}.jsonl: late-grant is valid, and the page says that it breaks"
    ]
    with pytest.raises(BadPage, match="late-grant is valid"):
        track.rewrite(copy)


def test_a_verdict_that_does_not_apply_is_found(copy: Path) -> None:
    spoil(copy / f"{ID}.md", '= "wrong-release" }', '= "fence-order" }')
    (page,) = pages(copy)
    assert "fence-order is absent" in track.misjudged(page, copy)[0]


def test_a_history_that_was_healed_is_found(copy: Path) -> None:
    """Without the release of the late holder nothing is released wrongly."""
    path = copy / f"{ID}.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    release = next(i for i, line in enumerate(lines) if '"f":"release"' in line)
    path.write_text("".join(lines[:release] + lines[release + 1 :]))
    (page,) = pages(copy)
    assert track.misjudged(page, copy)


def test_an_old_quotation_and_an_old_index_are_renewed(copy: Path) -> None:
    spoil(copy / f"{ID}.md", "though its own hold was over", "for fun")
    changed = track.rewrite(copy)
    assert [path.name for path in changed] == [f"{ID}.md", INDEX]
    assert "though its own hold was over" in (copy / f"{ID}.md").read_text()
    assert track.rewrite(copy) == []


def test_a_page_without_marks_is_named(copy: Path) -> None:
    spoil(copy / f"{ID}.md", track.QUOTED, "")
    with pytest.raises(BadPage, match=f"{ID}.md: the marks"):
        track.rewrite(copy)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('id = "redis', 'id = "regis', "its id is"),
        ('kind = "control"', 'kind = "feature"', "not one of"),
        ("shown = ", "shown = 9", "showed"),
        ("shown = ", "shown = 1.", r"\$\.shown"),
        ("histories = {", "histories = [] # {", r"\$\.histories"),
        ("source = ", "sauce = ", "unknown field `sauce`"),
        ('source = "', 'source = "" # ', "must not be empty"),
        (f'"{ID}.jsonl"', '"other.jsonl"', "other.jsonl is missing"),
        ('kind = "control"', 'kind = "cost"', "where nothing is broken"),
        ('kind = "control"', 'kind = "refuted"', "showed"),
        ("```toml\n", "```toml\n]", "header is wrong: Invalid"),
        ("# A late", "A late", "does not begin with a title"),
        ("locks = [", 'script = "none.py"\nlocks = [', "none.py is missing"),
        ("locks = [", 'also = ["paus"]\nlocks = [', "faults of the bench, not .*paus"),
        ("locks = [", 'also = "pause"\nlocks = [', r"\$\.also"),
    ],
)
def test_a_header_that_is_wrong_is_named(copy: Path, old: str, new: str, said: str) -> None:
    spoil(copy / f"{ID}.md", old, new)
    with pytest.raises(BadPage, match=f"{ID}.md: .*{said}"):
        pages(copy)


def test_a_cut_keeps_whole_holds_and_invents_nothing(tmp_path: Path) -> None:
    """A long history with one double grant: what is cut out is that, under its own names."""
    path = tmp_path / "long.jsonl"
    path.write_text("".join(_long(double=True)))
    whole = read_jsonl(path)
    small = cutting.excerpt(whole, "double-grant")
    assert len(small) == 8
    assert {whole.hold_name(h) for h in small.hold.tolist()} == {"h50", "twin"}
    assert small.invoke_ns[0] == 0
    assert cutting.broken(small) == cutting.broken(whole)
    saved = tmp_path / "small.jsonl"
    saved.write_text(cutting.lines(small))
    assert (
        check(read_jsonl(saved)).verdicts["double-grant"] == check(small).verdicts["double-grant"]
    )
    releases = saved.read_text().count('"f":"release"')
    assert releases == 2, "a hold without its release would be promised for ever"


def test_a_fault_goes_along_without_what_was_seen_of_it(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    fault = (
        '{"process":"nemesis","f":"wipe","targets":["redis-1"],"begin_ns":[50000,50001],'
        '"heal_ns":[50500,50600],"facts":{"port":1}}\n'
    )
    early = fault.replace("50", "10")
    path.write_text("".join([*_long(double=True), fault, early]))
    (kept,) = cutting.excerpt(read_jsonl(path), "double-grant").faults
    assert (kept.name, kept.begin_ns, dict(kept.facts)) == ("wipe", (0, 1), {})


def test_a_verdict_that_holds_cannot_be_cut_out(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text("".join(_long(double=False)))
    with pytest.raises(BadInput, match="double-grant is valid"):
        cutting.excerpt(read_jsonl(path), "double-grant")
    with pytest.raises(BadInput, match="fence-order is absent"):
        cutting.excerpt(read_jsonl(path), "fence-order")


def test_count_says_how_often_a_dead_holders_key_stayed_locked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [make_run(tmp_path / name, double=True).path for name in "abc"]
    struck = [DeadHolder(None, locked=True), DeadHolder(3.1, locked=False), None]

    def next_of(*_: object) -> DeadHolder | None:
        return struck.pop(0)

    monkeypatch.setattr(track, "dead_holder", next_of)
    track.count(runs, lock="etcd", fault="pause", topology=None)
    said = capsys.readouterr().out.splitlines()
    assert said == ["double-grant 3 of 3", "linearizable 3 of 3", "locked 1 of 2"]


def _overtaken(by: int) -> list[str]:
    """A holder whose lease ends before its write, and so many others in between."""
    late = [
        (
            '{"process":99,"f":"acquire","key":"k","type":"ok","invoke_ns":0,"complete_ns":10,'
            '"hold":"late","valid_until_ns":500}\n'
        ),
        (
            '{"process":99,"f":"read","key":"k","type":"ok","invoke_ns":20,"complete_ns":40,'
            '"hold":"late","value":0,"applied_ns":30}\n'
        ),
        (
            f'{{"process":99,"f":"write","key":"k","type":"ok","invoke_ns":{1000 * (by + 1)},'
            f'"complete_ns":{1000 * (by + 1) + 40},"hold":"late","version":0,"value":{by + 1},'
            f'"applied_ns":{1000 * (by + 1) + 20}}}\n'
        ),
    ]
    others = [_cycle(f"h{i}", i % 4, 1000 * (i + 1), version=i) for i in range(by)]
    return [*late, *(line for cycle in others for line in cycle)]


def test_a_lost_update_that_overwrote_many_is_cut_out_with_one_of_them(tmp_path: Path) -> None:
    """The evidence names sixteen others, which are too many operations for a page."""
    path = tmp_path / "long.jsonl"
    path.write_text("".join(_overtaken(by=24)))
    whole = read_jsonl(path)
    small = cutting.excerpt(whole, "lost-update")
    assert {whole.hold_name(h) for h in small.hold.tolist()} == {"late", "h0"}
    assert len(small) == 7
    assert "lost-update" in cutting.broken(small) <= cutting.broken(whole)
    path.write_text("".join(_overtaken(by=6)))
    assert len(cutting.excerpt(read_jsonl(path), "lost-update")) == 27, "where they fit, all"


def test_what_no_cut_shows_is_refused_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "long.jsonl"
    path.write_text("".join(_overtaken(by=24)))
    monkeypatch.setattr(cutting, "OPERATIONS_MAX", 6)
    with pytest.raises(BadInput, match="operations belong to it, more than 6"):
        cutting.excerpt(read_jsonl(path), "lost-update")


def _long(*, double: bool) -> list[str]:
    """A hundred cycles one after the other; hold 50 has a twin in its midst."""
    made: list[str] = []
    for i in range(100):
        made += _cycle(f"h{i}", i % 4, 1000 * i, version=i)
    if double:
        made += _cycle("twin", 9, 50_200, version=50)
    return made


def _cycle(hold: str, process: int, at: int, *, version: int) -> list[str]:
    steps = [
        ("acquire", 0, 100, ""),
        ("read", 110, 120, f',"value":{version},"applied_ns":{at + 115}'),
        ("write", 500, 520, f',"version":{version},"value":{version + 1},"applied_ns":{at + 515}'),
        ("release", 600, 610, ""),
    ]
    return [
        f'{{"process":{process},"f":"{f}","key":"k","type":"ok","invoke_ns":{at + begin},'
        f'"complete_ns":{at + end},"hold":"{hold}"{more}}}\n'
        for f, begin, end, more in steps
    ]
