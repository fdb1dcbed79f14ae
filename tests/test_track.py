"""The track record: its histories are judged for ever, and a page that says otherwise is found."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

from lockbench.bench.plan import make_case
from lockbench.checker.catalogue import CATALOGUE
from lockbench.evidence import excerpt as cutting
from lockbench.evidence import explored, track
from lockbench.evidence.dead_holder import DeadHolder
from lockbench.evidence.track import FOLDER, INDEX, BadPage, Page, pages
from lockbench.explore.judge import MEANS
from lockbench.explore.scenarios import SCENARIOS
from lockbench.history.jsonl import read_jsonl
from lockbench.history.op import NULL, F
from tests.results.made_run import make_run

PAGES = pages()
EXPLORED = explored.load()
ID = "redis-no-owner"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
def test_a_page_says_what_the_checker_says(page: Page) -> None:
    assert track.misjudged(page) == []
    text = (FOLDER / f"{page.id}.md").read_text()
    assert track.with_quotation(text, track.quotation(page)) == text, (
        "the quotation is old: python -m lockbench.evidence.track write"
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
def test_the_command_of_a_page_can_be_given(page: Page) -> None:
    """A command of ours names a lock and a fault that exist, and that fit; a script parses. What
    another language runs stands in the page."""
    words = page.command.split()
    if words[:2] == ["lockbench", "run"]:
        given = dict(zip(words[2::2], words[3::2], strict=True))
        for lock in given["--lock"].split(","):
            make_case(lock, given["--fault"], seed=0, topology=given.get("--topology"))
    elif words[:2] == ["python", "-m"]:
        assert (FOLDER.parents[1] / f"{words[2].replace('.', '/')}.py").is_file()
    elif page.script:
        assert any(word.endswith(f"/{page.script}") for word in words)
    else:
        assert f"```{words[0]}\n" in (FOLDER / f"{page.id}.md").read_text()
    if page.script:
        ast.parse((FOLDER / page.script).read_text())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.id)
def test_a_page_says_whether_an_exploration_shows_it(page: Page) -> None:
    assert bool(page.explored) != bool(page.unexplored)
    assert {*page.explored} <= {*CATALOGUE, *MEANS}
    assert {*page.scenarios} <= {*SCENARIOS}
    maps = [one for lock in page.locks for one in EXPLORED.get(lock, ())]
    if page.explored and {one.lock for one in maps} == {*page.locks}:
        known = {name for one in maps for finding in one.findings for name in finding.known}
        assert page.id in known, "no stored exploration of its locks has found it"


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
    assert track.with_list(text, PAGES) == text, (
        "the index is old: python -m lockbench.evidence.track write"
    )


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
        ('explored = ["', 'explored = ["raises", "', "raised names the classes"),
        ("locks = [", 'raised = ["KeyError"]\nlocks = [', "raised names the classes"),
        ('explored = ["', 'scenarios = ["free"]\nexplored = []  # ["', "explored is empty"),
    ],
)
def test_a_header_that_is_wrong_is_named(copy: Path, old: str, new: str, said: str) -> None:
    spoil(copy / f"{ID}.md", old, new)
    with pytest.raises(BadPage, match=f"{ID}.md: .*{said}"):
        pages(copy)


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


def test_count_takes_no_side_of_a_change_for_the_lock(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = make_run(tmp_path / "whole", double=True).path
    side = make_run(tmp_path / "side", double=True, change=lambda case: case.update(side="new"))
    track.count([whole, side.path], lock="etcd", fault="pause", topology=None)
    said = capsys.readouterr()
    assert "double-grant 1 of 1" in said.out.splitlines()
    assert "both sides of a change" in said.err
