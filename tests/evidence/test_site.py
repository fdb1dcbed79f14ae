"""The site: whole, escaped, on its own; nothing green that was not run, nothing old unmarked."""

from __future__ import annotations

import importlib
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

import pytest
from msgspec.structs import replace as with_

from lockbench.bench import plan
from lockbench.evidence import observations, provenance, track
from lockbench.evidence.cells import Cell
from lockbench.evidence.observations import (
    Counted,
    Key,
    Last,
    Observations,
    Observed,
    Rated,
    Share,
    history_file,
)
from lockbench.evidence.site import prose
from lockbench.evidence.site.material import Material, material
from lockbench.evidence.site.pages import linked, write
from lockbench.locks import registry
from lockbench.locks.registry import find
from lockbench.results.documents import line_of
from lockbench.results.documents.exploration import (
    EventPlace,
    ExplorationMap,
    Finding,
    MappedScenario,
    StrikeAt,
)
from lockbench.results.errors import BadInput
from tests.evidence.test_adr import swept
from tests.report.browser import Browser, browser, needs_chromium

SCRIPT = "<script>alert('planted')</script>"
RUN = "2026-01-02T000000Z-full"
LOCK = f'''"""A lock. {SCRIPT} and ![an image](https://example.org/x.png)."""

from dataclasses import replace

from lockbench.locks.registry import declared

SYSTEM = replace(
    declared("etcd"), name="planted", source="https://example.org/a: '{SCRIPT}'", suites={{}}
)
'''
OPERATIONS = """\
{"history":1,"objects":{"k":{"kind":"mutex","role":"aimed"}},"epsilon_ns":0}
{"process":1,"f":"acquire","key":"k","type":"ok","invoke_ns":0,"complete_ns":1000000,"hold":"0000000000000001","sent_ns":0,"valid_until_ns":3000000000}
{"process":2,"f":"acquire","key":"k","type":"ok","invoke_ns":2000000,"complete_ns":3000000,"hold":"0000000000000003","sent_ns":2000000,"valid_until_ns":3000000000}
{"process":2,"f":"release","key":"k","type":"fail","invoke_ns":4000000,"complete_ns":5000000,"hold":"0000000000000003","error":"ERROR"}
{"process":1,"f":"release","key":"k","type":"ok","invoke_ns":6000000,"complete_ns":7000000,"hold":"0000000000000001"}
"""


@dataclass
class Page(HTMLParser):
    """What a page leads to, loads and runs."""

    links: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)
    loads: list[str] = field(default_factory=list)
    scripts: int = 0

    def __post_init__(self) -> None:
        HTMLParser.__init__(self)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given["id"]} if "id" in given else set()
        self.scripts += tag == "script"
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag in {"img", "iframe", "object", "embed", "link", "source", "use", "image"}:
            self.loads.append(tag)
        elif "src" in given:
            self.loads.append(given["src"])


def read(path: Path) -> Page:
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def dead(site: Path) -> set[tuple[str, str]]:
    """Links inside a site that lead nowhere: (page, link)."""
    pages = {path.resolve(): read(path) for path in site.rglob("*.html")}
    found = set()
    for path, page in pages.items():
        for link in page.links:
            name, _, anchor = link.partition("#")
            target = (path.parent / unquote(name)).resolve() if name else path
            outside = link.startswith(("https://", "http://"))
            known = pages.get(target)
            if not outside and (known is None or (anchor and unquote(anchor) not in known.ids)):
                found.add((str(path.relative_to(site)), link))
    return found


def observed(key: Key, **verdicts: tuple[int, int]) -> Observed:
    shares = {name.replace("_", "-"): Share(*share) for name, share in verdicts.items()}
    broke = tuple(name for name, share in shares.items() if share.k)
    return Observed(
        *key, cases=1, tries=1, exposed=1, verdicts=shares, last=Last(RUN, 7, "ok", broke)
    )


def explored_map(lock: str, topology: str) -> ExplorationMap:
    """One event, and what came of two faults at it."""
    reply = EventPlace("reply", 1, 1)
    lost = (StrikeAt(reply, "reply-lost"),)
    return ExplorationMap(
        lock=lock,
        topology=topology,
        depth=1,
        lease_s=2.0,
        at="2026-01-01 00:00",
        versions={**provenance.today(find("etcd"), "etcd"), "lockbench": "0.0"},
        faults={"late": "it is late", "reply-lost": "it is lost"},
        scenarios=(
            MappedScenario("free", "a free key", (reply,), {"reply-lost": (1,), "late": (0,)}),
        ),
        singles=2,
        findings=(
            Finding(("raises",), SCRIPT, "free", lost, False, 3, 11, "1", ("redlock-clock-jump",)),
        ),
        ended=True,
        whole=True,
    )


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Material]:
    """A lock in a folder of its own, with one break, whose texts try to be scripts."""
    base = tmp_path_factory.mktemp("planted")
    package, folder, record = (base / name for name in ("plantedlocks", "observed", "track"))
    for path in (package, folder / "planted", record):
        path.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "mine.py").write_text(LOCK)
    page = (track.FOLDER / "redlock-clock-jump.md").read_text()
    (record / "redlock-clock-jump.md").write_text(f"{page}\n{SCRIPT} [elsewhere](../gone.md)\n")
    shutil.copy(track.FOLDER / "redlock-clock-jump.jsonl", record)
    key = Key("planted", "etcd", "kill")
    saved = folder / history_file("planted", "kill", "double-grant")
    saved.write_text(OPERATIONS.replace("ERROR", SCRIPT.replace('"', "'")))
    now = provenance.today(find("etcd"), "etcd")
    run = Counted(RUN, 1, "0" * 64, now, "2 cores")
    rates = {("planted", "etcd"): Rated("planted", "etcd", RUN, swept("planted"))}
    found = Observations({RUN: run}, {key: observed(key, double_grant=(1, 1))}, rates=rates)
    observations.save(found, folder)
    (folder / "planted" / "messages-etcd.json").write_text(line_of(explored_map("planted", "etcd")))
    sys.path.insert(0, str(base))
    with pytest.MonkeyPatch.context() as patch:
        given = material(importlib.import_module("plantedlocks"), folder, record)
        everything = {**registry.systems(), **given.systems}
        for where in (registry, plan):
            patch.setattr(where, "systems", lambda: everything)
        yield given
    sys.path.remove(str(base))
    for name in ("plantedlocks", "plantedlocks.mine"):
        sys.modules.pop(name)


@pytest.fixture(scope="module")
def site(planted: Material, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site") / "new"
    write(folder, planted)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of this repository."""
    folder = tmp_path_factory.mktemp("whole") / "site"
    write(folder, material())
    return folder


def test_every_link_inside_the_site_leads_somewhere(whole: Path, site: Path) -> None:
    assert dead(whole) == set()
    # The track record of the planted site is about locks that it does not have.
    assert dead(site) == set()


def test_a_dead_link_is_found(site: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(site, copy)
    (copy / "faults" / "kill.html").unlink()
    assert ("index.html", "faults/kill.html") in dead(copy)
    lock = copy / "locks" / "planted.html"
    lock.write_text(lock.read_text().replace('id="kill"', 'id="other"'))
    assert ("index.html", "locks/planted.html#kill") in dead(copy)


def test_nothing_is_loaded_from_anywhere(whole: Path, site: Path) -> None:
    for path in (*whole.rglob("*.html"), *site.rglob("*.html")):
        page, text = read(path), path.read_text(encoding="utf-8")
        assert page.loads == [], path
        assert "default-src 'none'" in text
        assert "@import" not in text
        # What CSS loads; a script that is shown may call something of another name.
        assert not re.search(r"\burl\(", text), path


def test_what_was_declared_or_recorded_is_no_script(site: Path) -> None:
    for path in site.rglob("*.html"):
        assert read(path).scripts == 3, path
        assert SCRIPT not in path.read_text(encoding="utf-8")
    shown = "&lt;script&gt;alert("
    lock = (site / "locks" / "planted.html").read_text()
    # Docstring, source of the declaration, and the error in the drawing.
    assert lock.count(shown) >= 3
    assert shown in (site / "defects" / "redlock-clock-jump.html").read_text()


def test_a_lock_in_another_folder_gets_its_page(site: Path) -> None:
    assert [path.name for path in (site / "locks").iterdir()] == ["planted.html"]
    page = (site / "locks" / "planted.html").read_text()
    assert "double-grant broke in one try, and is declared to hold" in page
    assert "lockbench run --lock planted --fault kill --seed 7" in page
    assert '<svg class="lanes"' in page
    assert "lockbench check docs/observed/planted/kill-double-grant.jsonl" in page


def cells(site: Path) -> dict[str, str]:
    """Column → opening of the cell of the planted lock."""
    text = (site / "index.html").read_text()
    row = text[text.index('href="locks/planted.html"') :].partition("</tr>")[0]
    columns = text[text.index("<thead>") : text.index("</thead>")].split("faults/")[1:]
    names = [column.partition(".html")[0] for column in columns]
    return dict(zip(names, row.split("<td class=")[1:], strict=True))


def test_what_came_of_a_fault_at_each_message_is_on_the_page_of_the_lock(site: Path) -> None:
    text = (site / "locks" / "planted.html").read_text()
    assert "Every message, on etcd" in text
    assert text.count('<td class="c kept">✓</td>') == 1
    assert text.count('<a href="#etcd-finding-0">✗</a>') == 1
    assert "lockbench 0.0, today" in text


def test_what_was_not_run_is_said_so_and_never_green(site: Path) -> None:
    found = cells(site)
    assert found["kill"].startswith('"worse"')
    assert found["pause"].startswith('"plain"')
    assert "not run" in found["pause"]
    assert found["wipe"].startswith('"na"')
    assert not any(cell.startswith('"kept') for cell in found.values())


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"etcd": "v3.0.0"}, "etcd v3.0.0, today "),
        ({"lockbench": "0.0.1"}, "lockbench 0.0.1, today "),
        ({"toxiproxy": None}, "toxiproxy: not recorded, today "),
        ({"redis-server": "1"}, None),  # it has no part in this lock
    ],
)
def test_results_of_other_versions_are_marked(
    planted: Material, tmp_path: Path, change: dict[str, str | None], said: str | None
) -> None:
    run = planted.found.runs[RUN]
    given = {name: at for name, at in {**run.versions, **change}.items() if at is not None}
    found = Observations({RUN: with_(run, versions=given)}, planted.found.cases)
    write(tmp_path / "site", replace(planted, found=found))
    lock = (tmp_path / "site" / "locks" / "planted.html").read_text()
    cell = cells(tmp_path / "site")["kill"]
    assert cell.startswith('"worse old"' if said else '"worse"')
    assert (said in lock) if said else ('<details class="old">' not in lock)
    assert ("etcd v3.0.0, today" in (tmp_path / "site" / "runs.html").read_text()) == (
        "etcd" in change
    )


def test_cases_of_runs_that_are_not_recorded_may_be_old(planted: Material) -> None:
    run, key = planted.found.runs[RUN], Key("planted", "etcd", "kill")
    older = with_(run, run="2025-01-01T000000Z-full", versions={**run.versions, "etcd": "v3.0.0"})
    two = with_(planted.found.cases[key], cases=2)
    found = Observations({RUN: run, older.run: older}, {key: two})
    now = provenance.today(planted.systems["planted"], "etcd")
    (said,) = provenance.not_of_today(two, found, now)
    assert said.startswith("perhaps etcd v3.0.0, today")
    known = with_(two, runs=(older.run, RUN))
    assert provenance.not_of_today(known, found, now)[0].startswith("etcd v3.0.0, today")
    assert provenance.not_of_today(with_(two, cases=1), found, now) == []


def test_versions_of_libraries_are_told_as_runs_record_them() -> None:
    for name in ("node-redlock", "node-redlock-5", "curator-mutex", "redsync"):
        told = provenance.of_library(find(name))
        assert told, name
        assert all(at[0].isdigit() or at.startswith("v") for at in told.values()), told


@pytest.mark.parametrize(("of_today", "recent"), [(2, 0), (3, 1)])
def test_a_case_is_recent_after_three_runs_of_today_s_versions(
    planted: Material, of_today: int, recent: int
) -> None:
    """However many there are of older ones."""
    run, key = planted.found.runs[RUN], Key("planted", "etcd", "kill")
    names = [f"2026-01-0{n}T000000Z-full" for n in range(1, 6)]
    versions = [run.versions] * of_today + [{**run.versions, "etcd": "v3.0.0"}] * (5 - of_today)
    runs = {
        name: with_(run, run=name, versions=of) for name, of in zip(names, versions, strict=True)
    }
    entry = planted.found.cases[key]
    last = with_(entry.last, run=names[0])
    found = Observations(runs, {key: with_(entry, cases=5, runs=tuple(names), last=last)})
    system = planted.systems["planted"]
    assert provenance.recent([Cell(system, key, found.cases[key])], found) == recent
    latency = Key("planted", "etcd", "latency")
    assert provenance.recent([Cell(system, latency, found.cases[key])], found) == 0, "not of full"
    assert provenance.recent([Cell(system, key, None)], found) == 0


def test_a_lock_s_page_has_its_figures_with_their_conditions(site: Path) -> None:
    text = (site / "locks" / "planted.html").read_text()
    assert "it carries 950 [900–1,000] locks per second" in text
    assert '<td class="num">1.00 [1.00–1.10]</td><td class="num">4.00 [4.00–4.40]</td>' in text
    assert "32 clients, each with a key of its own" in text
    assert "2 cores, in" in text


def test_every_version_of_today_is_known() -> None:
    """Of every lock on every cluster, as runs record them."""
    recorded = {name for run in observations.load().runs.values() for name in run.versions}
    for system in registry.systems().values():
        for topology in system.topologies:
            now = provenance.today(system, topology)
            assert all(now.values())
            assert now.keys() <= recorded, system.name


def test_links_of_prose_lead_to_the_site_or_nowhere() -> None:
    text = prose.html("[a](b.md) [c](gone.md) [d](https://e.org)", {"b.md": "b.html"}.get)
    assert text == '<p><a href="b.html">a</a> <a>c</a> <a href="https://e.org">d</a></p>\n'
    assert "javascript:" not in prose.html("[a](javascript:x)") or "<a" not in prose.html(
        "[a](javascript:x)"
    )


def test_an_address_ends_before_the_sentence_goes_on() -> None:
    text = linked("see https://e.org/a#b: 'x' & (https://f.org).")
    assert '<a href="https://e.org/a#b">https://e.org/a#b</a>: &#39;x&#39; &amp; (' in text
    assert '">https://f.org</a>).' in text


def test_what_cannot_be_read_is_one_sentence(planted: Material, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="does not exist"):
        material(observed=tmp_path / "nowhere")
    (tmp_path / "bad.md").write_text("# A title, and no header\n")
    with pytest.raises(BadInput, match=r"bad.md: it does not begin"):
        material(track_record=tmp_path)
    gone = replace(planted, track=tmp_path / "nowhere")
    with pytest.raises(BadInput, match="redlock-clock-jump"):
        write(tmp_path / "site", gone)


def test_only_a_site_is_written_over(planted: Material, site: Path, tmp_path: Path) -> None:
    stranger = tmp_path / "mine.txt"
    stranger.touch()
    with pytest.raises(BadInput, match="something else than a site"):
        write(tmp_path, planted)
    (tmp_path / "latin").mkdir()
    (tmp_path / "latin" / "index.html").write_bytes("<p>Übersicht".encode("latin-1"))
    with pytest.raises(BadInput, match="something else than a site"):
        write(tmp_path / "latin", planted)
    with pytest.raises(BadInput, match="is a file"):
        write(stranger, planted)
    copy = tmp_path / "copy"
    shutil.copytree(site, copy)
    (copy / "locks" / "gone.html").touch()
    write(copy, planted)
    assert {path.name for path in (copy / "locks").iterdir()} == {"planted.html"}


@pytest.fixture(scope="module")
def page(whole: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as opened:
        opened.screen(1400, 1000)
        yield opened


SHOWN = "[...document.querySelectorAll('.cells tbody tr')].filter(row => !row.hidden)"


def choose(page: Browser, name: str, value: str) -> None:
    page.ask(
        f"(() => {{const s = document.querySelector('select[name={name}]'); s.value = '{value}';"
        "s.dispatchEvent(new Event('change', {bubbles: true}))})()"
    )


@needs_chromium
def test_the_matrix_is_filtered(page: Browser, whole: Path) -> None:
    page.open((whole / "index.html").as_uri())
    everything = page.ask(f"{SHOWN}.length")
    choose(page, "family", "zookeeper")
    assert {"zookeeper"} == set(page.ask(f"{SHOWN}.map(row => row.dataset.family)"))
    choose(page, "language", "Java")
    assert {"Java"} == set(page.ask(f"{SHOWN}.map(row => row.dataset.language)"))
    page.click("button[type=reset]")
    choose(page, "verdict", "fence-order")
    some = page.ask(
        f"{SHOWN}.map(row => [...row.cells].filter(c => !c.classList.contains('faint'))"
        ".some(c => (c.dataset.broke ?? '').includes('fence-order')))"
    )
    assert 0 < len(some) < everything
    assert all(some)
    assert page.errors == []


@needs_chromium
def test_the_keyboard_reaches_every_part(page: Browser, whole: Path) -> None:
    page.open((whole / "index.html").as_uri())
    reached = []
    for _ in range(14):
        for kind in ("keyDown", "keyUp"):
            page.call("Input.dispatchKeyEvent", type=kind, key="Tab", windowsVirtualKeyCode=9)
        reached.append(page.ask("document.activeElement.name || document.activeElement.tagName"))
    assert {"A", "BUTTON", "family", "language", "verdict"} <= set(reached)


@needs_chromium
@pytest.mark.parametrize("width", [1400, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_is_wider_than_the_screen(
    page: Browser, whole: Path, width: int, scheme: str
) -> None:
    page.screen(width, 900, scheme=scheme, phone=width == 400)
    for name in (
        "index.html", "locks/redlock.html", "faults/wipe.html", "faults.html", "runs.html",
        "defects/redlock-clock-jump.html", "defects.html",
    ):  # fmt: skip
        page.open((whole / name).as_uri())
        assert page.ask("document.documentElement.scrollWidth") <= width, name
    assert page.errors == []
    assert all(url.startswith("file:") for url in page.requests)
