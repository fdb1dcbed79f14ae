"""The pages of the site, and the command that writes them: ``lockbench site DIR``.

    index.html          locks and faults, to be filtered; what servers cost
    locks/<lock>.html   one lock      faults/<fault>.html    one fault
    defects/<id>.html   one defect    faults.html, defects.html, runs.html   lists

Guarantees: every page stands alone (styles, scripts and drawings are in it, its policy forbids to
load anything), every link inside the site leads somewhere, and whatever was recorded or declared is
escaped. Without scripts everything is there, and nothing can be filtered or sorted.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lockbench.bench.plan import fits
from lockbench.bench.undeclared import undeclared
from lockbench.checker.catalogue import CATALOGUE, OF_LOCKS
from lockbench.checker.drawing import SCRIPT
from lockbench.clusters.registry import topologies
from lockbench.evidence import provenance, track
from lockbench.evidence.cells import SIGNS, Cell, far, language
from lockbench.evidence.observations import Key, Rated
from lockbench.evidence.site import prose
from lockbench.evidence.site.material import Material, doc_of_fault
from lockbench.history.files import BadFile, read_text
from lockbench.history.lines import UnreadableHistory
from lockbench.locks.base import ANY, Shareable, System
from lockbench.locks.shared.client_container import ContainerLibrary
from lockbench.locks.shared.lease import extendable
from lockbench.locks.shared.library import library_of
from lockbench.nemesis.registry import NONE, faults
from lockbench.report import messages, rates
from lockbench.report.page import asset, drawings_legend, drawings_style, policy
from lockbench.results import wording
from lockbench.results.documents import PerGrant
from lockbench.results.documents.exploration import ExplorationMap
from lockbench.results.errors import BadInput
from lockbench.results.statistics import BOUND_TRIES_MIN
from lockbench.results.store import write_atomically
from lockbench.results.wording import NONE as NONE_WORD
from lockbench.results.wording import printable
from lockbench.stores.registry import guards_of

MARK: Final = '<meta name="generator" content="lockbench site">'
FOLDERS: Final = ("locks", "faults", "defects")
WORDS: Final = {
    "holds": "holds",
    "may-break": "may break",
    "breaks": "breaks",
    "n/a": "does not apply",
}


def write(folder: Path, given: Material) -> int:
    """Writes every page and returns how many. A site that stood there is replaced. Raises BadInput,
    also for a folder with anything else in it."""
    index = folder / "index.html"
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder} is a file; name a folder")
    if folder.is_dir() and any(folder.iterdir()) and not _is_site(index):
        raise BadInput(f"{folder} holds something else than a site; name a new folder")
    try:
        written = dict(pages(given))
        for name in FOLDERS:
            shutil.rmtree(folder / name, ignore_errors=True)
            (folder / name).mkdir(parents=True)
        for path, text in written.items():
            write_atomically(folder / path, text)
    except (BadFile, UnreadableHistory) as error:
        raise BadInput(str(error)) from error
    except OSError as error:
        raise BadInput(f"{folder} cannot be written: {error.strerror or error}") from error
    return len(written)


def _is_site(index: Path) -> bool:
    try:
        return index.is_file() and MARK in read_text(index)
    except BadFile:
        return False


def pages(given: Material) -> Iterator[tuple[str, str]]:
    """(path, HTML) of every page."""
    yield "index.html", _index(given)
    for system in given.systems.values():
        yield f"locks/{system.name}.html", _lock(given, system)
    for fault in _faults(given):
        yield f"faults/{fault}.html", _fault(given, fault)
    for page in given.defects:
        yield f"defects/{page.id}.html", _defect(given, page)
    listed = [(fault, _summary(fault), _counts(given.under(fault))) for fault in _faults(given)]
    yield "faults.html", _rendered("faults.html.j2", given, "", faults=listed)
    yield "defects.html", _rendered("defects.html.j2", given, "", defects=given.defects)
    yield "runs.html", _runs(given)


def _faults(given: Material) -> list[str]:
    return list(dict.fromkeys([*given.columns, *faults()]))


def _index(given: Material) -> str:
    rows = []
    for name, cells in given.cells.items():
        system = given.systems[name]
        for topology in dict.fromkeys(key.topology for key in cells):
            row = [
                cells.get(Key(name, topology, f)) or given.cell(system, topology, f)
                for f in given.columns
            ]
            rows.append((system, topology, row))
    every = [cell for _, _, row in rows for cell in row]
    return _rendered(
        "index.html.j2",
        given,
        "",
        rows=rows,
        families=sorted({system.family for system in given.systems.values()}),
        languages=sorted({language(system) for system in given.systems.values()}),
        verdicts=[v for v in OF_LOCKS if any(v in cell.broke for cell in every)],
        counts=_counts(every),
        costs=list(_costs(given)),
        far=far(every),
        recent=provenance.recent(every, given.found),
    )


def _counts(cells: Sequence[Cell]) -> dict[str, int]:
    """How many there are of each kind."""
    return {kind: sum(cell.kind == kind for cell in cells) for kind in SIGNS}


def _costs(given: Material) -> Iterator[tuple[str, str, str, list[str]]]:
    """(lock, topology, run, figures) of every footprint."""
    for it in given.found.footprints.values():
        cost = it.footprint
        spans = [cost.own or PerGrant(), cost.contended or PerGrant()]
        numbers = [
            cost.servers,
            None if cost.memory_bytes is None else cost.memory_bytes / 2**20,
            *(span.commands_per_grant for span in spans),
            *(span.cpu_us_per_grant for span in spans),
            *(span.grants_per_second for span in spans),
            it.jain,
        ]
        if it.lock in given.systems:
            yield it.lock, it.topology, it.run, [_number(number) for number in numbers]


def _rates(given: Material, system: System) -> Iterator[tuple[Rated, list[list[str]]]]:
    """What a lock carries and how long it takes at shares of that, by rate."""
    for it in given.found.rates.values():
        if it.lock == system.name:
            yield (
                it,
                [
                    [
                        rates.at(one),
                        wording.rate(one.offered_per_s.median),
                        rates.response(one, "p50"),
                        rates.response(one, "p99"),
                        f"{one.response_ms.count:,}",
                    ]
                    for one in it.rates.rates
                ],
            )


COSTS: Final = (
    "servers",
    "memory, MiB",
    "commands per grant, own keys",
    "contended",
    "server CPU per grant, own keys, µs",
    "contended",
    "grants/s, own keys",
    "contended",
    "fairness (Jain)",
)


def _number(value: float | None) -> str:
    if value is None:
        return NONE_WORD
    return f"{value:,.0f}" if value >= 100 or isinstance(value, int) else f"{value:.3g}"


def _lock(given: Material, system: System) -> str:
    cells = [cell for cell in given.cells[system.name].values() if cell.applies or cell.observed]
    doc = given.docs.get(system.name, "").partition("\n\n")
    kin = [other for other in given.systems.values() if _kin(system) == _kin(other) != ""]
    return _rendered(
        "lock.html.j2",
        given,
        "../",
        system=system,
        lead=prose.doc(doc[0]),
        doc=prose.doc(doc[2]),
        cells=cells,
        promises=_promises(system),
        silent=undeclared([system]).get(system.name, ()),
        features=_features(system),
        guards=[] if system.kind == "none" else guards_of(system.name, system.fence),
        settings=_settings(system),
        kin=[other for other in kin if other.name != system.name],
        defects=[page for page in given.defects if system.name in page.locks],
        costs=[found for found in _costs(given) if found[0] == system.name],
        rates=list(_rates(given, system)),
        explored=[_explored(given, system, one) for one in given.explored.get(system.name, ())],
        versions=given.today[system.name, system.topologies[0]],
    )


@dataclass(frozen=True)
class _Explored:
    """An exploration: its summary and tables, and what of it is not of today's versions."""

    map: ExplorationMap
    lines: Sequence[str]
    tables: Markup
    old: Sequence[str]


def _explored(given: Material, system: System, one: ExplorationMap) -> _Explored:
    now = given.today.get((system.name, one.topology), {})
    old = provenance.differences(one.versions, now)
    tables = messages.tables(one, defects="../defects/")
    return _Explored(one, messages.summary(one), Markup(tables), old)  # noqa: S704 - it escapes


def _kin(system: System) -> str:
    """The file that drives it, which its variants share; empty for a recipe."""
    library = library_of(system)
    if isinstance(library, ContainerLibrary):
        return library.program.library
    return "" if library is None else library.name


def _promises(system: System) -> list[tuple[str, list[str], list[str], str, str]]:
    """(word, verdicts, faults, kind, source): what is declared, what says the same put together."""
    under: dict[tuple[str, str, str, str], list[str]] = {}
    for fault, verdicts in system.expectations.items():
        for verdict, e in verdicts.items():
            told = "every other verdict" if verdict == ANY else verdict
            under.setdefault((e.expected, e.kind or "", e.source, told), []).append(fault)
    alike: dict[tuple[str, str, str, tuple[str, ...]], list[str]] = {}
    for (word, kind, source, told), where in under.items():
        alike.setdefault((word, kind, source, tuple(where)), []).append(told)
    found = [
        (WORDS[word], told, [*where], kind, source)
        for (word, kind, source, where), told in alike.items()
    ]
    order = [*WORDS.values()]
    return sorted(found, key=lambda one: order.index(one[0]))


def _features(system: System) -> dict[str, str]:
    library = library_of(system)
    shares = isinstance(system.connect, type) and issubclass(system.connect, Shareable)
    if isinstance(library, ContainerLibrary):
        shares = library.shares
    kind = system.kind if system.permits is None else f"{system.kind}, {system.permits} permits"
    return {
        "kind": kind,
        "client in": language(system) + (", a recipe of Lockbench" if library is None else ""),
        "runs on": ", ".join(system.topologies),
        "waits by": system.waits_by,
        "fencing token": system.fence or "none",
        "grants end by themselves": "yes" if system.limited else "no",
        "a holder can extend": "yes" if extendable(system) else "no",
        "readers share": "yes" if shares else "no",
        "order of waiters": f"promised: {system.queue}" if system.queue else "not promised",
    }


def _settings(system: System) -> dict[str, str]:
    """What is set on the library, what may be chosen of the lock, and what the servers have."""
    library = library_of(system)
    found: dict[str, str] = {}
    if isinstance(library, ContainerLibrary):
        found |= {**library.program.settings, **(library.program.safe if library.safe else {})}
    for name, parameter in system.parameters.items():
        choices = f"; {', '.join(parameter.choices)}" if parameter.choices else ""
        default = f"default {parameter.default}{parameter.unit}{choices}"
        found[f"{system.name}:{name}=…"] = f"{parameter.summary} ({default})"
    return found | dict(topologies()[system.topologies[0]].settings)


def _summary(fault: str) -> str:
    return "nothing is broken on purpose" if fault == NONE else faults()[fault].summary


def _fault(given: Material, fault: str) -> str:
    cells = sorted(given.under(fault), key=lambda cell: (cell.system.family, cell.key))
    return _rendered(
        "fault.html.j2",
        given,
        "../",
        fault=fault,
        summary=_summary(fault),
        doc=prose.doc(doc_of_fault(fault)),
        parameters={} if fault == NONE else faults()[fault].parameters,
        topologies=[name for name in topologies() if fault == NONE or fits(fault, name)],
        cells=cells,
        spared=sorted({*given.systems} - {cell.key.lock for cell in cells}),
        defects=[page for page in given.defects if fault in (page.fault, *page.also)],
    )


def _defect(given: Material, page: track.Page) -> str:
    text = read_text(given.track / f"{page.id}.md")
    body = text.partition("```toml\n")[2].partition("\n```\n")[2]
    prose_before, _, quoted = body.partition(track.QUOTED)  # the drawings say the same
    body = prose_before + quoted.partition(track.QUOTED_END)[2]
    systems = [given.systems[name] for name in page.locks if name in given.systems]
    now = {
        name: at
        for system in systems
        for name, at in (
            provenance.of_library(system) or given.today[system.name, system.topologies[0]]
        ).items()
    }
    script = given.track / page.script if page.script else None
    return _rendered(
        "defect.html.j2",
        given,
        "../",
        page=page,
        body=prose.html(body, lambda target: _on_site(given, target)),
        pictures=given.drawn(page),
        script=read_text(script) if script else "",
        now=now,
    )


def _on_site(given: Material, target: str) -> str | None:
    """Where a link of a page of the track record leads here."""
    name, _, anchor = target.partition("#")
    if name == "../systems.md":
        return f"../locks/{anchor}.html" if anchor in given.systems else "../index.html"
    linked = name.removesuffix(".md")
    return f"{linked}.html" if any(page.id == linked for page in given.defects) else None


def _runs(given: Material) -> str:
    everything: dict[str, str] = {}
    for now in given.today.values():
        everything |= now
    runs = sorted(given.found.runs.values(), key=lambda run: run.run, reverse=True)
    taken_back: dict[str, list[str]] = {}
    for key, entry in sorted(given.found.taken_back.items()):
        taken_back.setdefault(entry.why, []).append(f"{key} ({entry.cases})")
    return _rendered(
        "runs.html.j2",
        given,
        "",
        runs=runs,
        changed=provenance.changed(runs, everything),
        now=dict(sorted(everything.items())),
        taken_back=taken_back,
    )


# --- how it is written ----------------------------------------------------------------------------


def anchor(cell: Cell) -> str:
    """Of its row on the page of its lock."""
    return f"{cell.key.fault}-on-{cell.elsewhere}" if cell.elsewhere else cell.key.fault


def command(cell: Cell) -> str:
    """What runs the case again, as it was run last."""
    seed = cell.observed.last.seed if cell.observed else None
    return (
        f"lockbench run --lock {cell.key.lock} --fault {cell.key.fault}"
        + (f" --topology {cell.elsewhere}" if cell.elsewhere else "")
        + (f" --seed {seed}" if seed else "")
    )


def shown(page: track.Page) -> str:
    """In how many runs of its command a defect showed; k of n only where there are three."""
    return ", ".join(f"{lock} {_times(k, n)}".strip() for lock, (k, n) in page.tries.items())


def _times(k: int, n: int) -> str:
    if n >= BOUND_TRIES_MIN or k != n:
        return f"{k} of {n} runs"
    return "one run" if n == 1 else "two runs"


def linked(text: str) -> Markup:
    """Text in which every address is a link."""
    found, end = Markup(), 0
    for match in prose.ADDRESS.finditer(text):
        address = escape(match[0])
        found += escape(text[end : match.start()])
        found += Markup('<a href="{0}">{0}</a>').format(address)
        end = match.end()
    return found + escape(text[end:])


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("lockbench.evidence.site", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: printable(value) if type(value) is str else value,
    )
    ours = (Path(__file__).parent / "script.js").read_text(encoding="utf-8")
    scripts = [SCRIPT, asset("script.js"), ours]
    made.globals |= {
        "scripts": [Markup(script) for script in scripts],  # noqa: S704 - our own
        "hashes": Markup(" ".join(policy(script) for script in scripts)),  # noqa: S704
        "style": Markup(  # noqa: S704 - our own
            drawings_style()
            + messages.style()
            + (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
        ),
        "legend": Markup(drawings_legend()),  # noqa: S704 - our own
        "mark": Markup(MARK),  # noqa: S704 - our own
        "catalogue": CATALOGUE,
        "cost_headings": COSTS,
        "carried": rates.carried,
        "signs": SIGNS,
        "words": WORDS,
        "known_faults": (NONE, *faults()),
        "language": language,
        "shown": shown,
        "anchor": anchor,
        "command": command,
        "linked": linked,
        "runs_of": provenance.runs_of,
        "age": provenance.age,
    }
    return made


def _rendered(template: str, given: Material, root: str, **values: Mapping[str, Any] | Any) -> str:
    """``root`` is the way from the page to the folder of the site."""
    return _environment().get_template(template).render(given=given, root=root, **values)
