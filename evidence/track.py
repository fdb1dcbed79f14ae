"""The track record: for every defect found, a page and a small history that the tests judge anew.

    python -m lockbench.evidence.track cut RUN --case 24 --verdict double-grant >
    docs/track/NAME.jsonl
    python -m lockbench.evidence.track write        the index, and in every page what the checker
                                                    says

Guarantees: what a page quotes is what the checker says of its histories today (``excerpt`` says
what those are). Does not guarantee that the prose of a page is true, nor that its k of n can be
reached elsewhere.

A page is ``docs/track/<id>.md``: its title, a block of TOML (``Page`` has the fields), prose, and
the quotation between two marks, which ``write`` fills in.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from lockbench.checker.check import check
from lockbench.checker.load import load
from lockbench.evidence.check import explained
from lockbench.evidence.dead_holder import dead_holder
from lockbench.evidence.excerpt import excerpt, lines
from lockbench.history.files import BadFile, read_text
from lockbench.history.jsonl import read_jsonl
from lockbench.history.lines import UnreadableHistory
from lockbench.nemesis.registry import faults
from lockbench.report.grid import Markdown, markdown_table
from lockbench.results.cases import attempts, broken, k_of_n
from lockbench.results.documents import CaseResult
from lockbench.results.errors import BAD_INPUT, BadInput
from lockbench.results.store import NotARun, RunFolder, open_run, write_atomically
from lockbench.results.stored import Edited, countable, history_of, stored
from lockbench.results.wording import printable

FOLDER: Final = Path(__file__).resolve().parents[1] / "docs" / "track"
INDEX: Final = "README.md"
SHARED: Final = "plain.py"  # what the scripts share
QUOTED: Final = "<!-- what the checker says -->"
QUOTED_END: Final = "<!-- end -->"
LISTED: Final = "<!-- the pages -->"
KINDS: Final = ("documented-limit", "defect", "control")
# No promise is broken, so the checker has nothing to say: a claim that was tried in vain, what only
# costs, and a lock that nobody gets any more.
LIVENESS: Final = "liveness"
WITHOUT_HISTORY: Final = ("refuted", "cost", LIVENESS)
RAISES: Final = "raises"  # of ``lockbench explore``: an error that a library does not document


class Page(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One defect. ``histories`` maps a file in the same folder to the verdict that it breaks; it is
    empty for a claim that was refuted and where no promise of exclusion is broken. ``shown`` is in
    how many of ``runs`` independent runs of ``command`` it showed, or ``by_lock`` the same of each
    lock where each was run by itself; ``script`` is a program in the
    same folder that shows it without Lockbench, or empty. ``also`` are other faults of the bench
    under which the same thing shows. ``explored``: the verdicts and findings as which
    ``lockbench explore`` shows it, and ``scenarios``: in which alone, or empty; ``unexplored``: why
    it cannot. ``raised``: the classes of the errors that it is about, where ``raises`` is one of
    ``explored``."""

    id: str
    title: str
    locks: tuple[str, ...]
    fault: str
    kind: str
    versions: str
    histories: dict[str, str]
    shown: int = 0
    runs: int = 0
    by_lock: dict[str, tuple[int, int]] = {}
    command: str
    source: str
    script: str = ""
    also: tuple[str, ...] = ()
    explored: tuple[str, ...] = ()
    scenarios: tuple[str, ...] = ()
    unexplored: str = ""
    raised: tuple[str, ...] = ()

    def explains(self, lock: str, fault: str) -> bool:
        """Whether it is about this lock under this fault."""
        return lock in self.locks and fault in (self.fault, *self.also)

    @property
    def tries(self) -> dict[str, tuple[int, int]]:
        """(k, n) by lock; under an empty name where they are those of all of its locks."""
        return self.by_lock or {"": (self.shown, self.runs)}

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Each verdict that one of the histories breaks, once."""
        return tuple(dict.fromkeys(self.histories.values()))


class BadPage(Exception):
    """A page that is not as it should be; the message names the page and what is wrong."""


def pages(folder: Path = FOLDER) -> list[Page]:
    """Every page, by id. Raises BadPage."""
    return [page(path) for path in sorted(folder.glob("*.md")) if path.name != INDEX]


def page(path: Path) -> Page:
    """Reads title and header of a page. Raises BadPage."""
    text = _text(path)
    found = re.match(r"# (?P<title>[^\n]+)\n+```toml\n(?P<toml>.*?)```\n", text, re.DOTALL)
    if found is None:
        raise BadPage(f"{path.name}: it does not begin with a title and a block of TOML")
    try:
        given = tomllib.loads(found["toml"])
        made = msgspec.convert({**given, "title": found["title"]}, Page)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError, RecursionError) as error:
        raise BadPage(f"{path.name}: its header is wrong: {error}") from error
    if fault := _fault(made, path):
        raise BadPage(f"{path.name}: {fault}")
    return made


def _fault(made: Page, path: Path) -> str | None:
    """What is wrong with a header, or None."""
    if not set(made.also) <= set(faults()):
        return f"also is a list of faults of the bench, not {list(made.also)}"
    if made.id != path.stem:
        return f"its id is {made.id}"
    if made.kind not in (*KINDS, *WITHOUT_HISTORY):
        return f"its kind is {made.kind}, not one of {', '.join((*KINDS, *WITHOUT_HISTORY))}"
    if made.by_lock and (made.runs or set(made.by_lock) != set(made.locks)):
        return "by_lock has each of its locks, and stands instead of shown and runs"
    for k, n in made.tries.values():
        if not 0 <= k <= n or (k == 0) != (made.kind == "refuted"):
            return f"it showed {k} times in {n} runs"
    if not (made.source.strip() and made.versions.strip() and made.locks):
        return "source, versions and locks must not be empty"
    if bool(made.raised) != (RAISES in made.explored):
        return f"raised names the classes of errors, where {RAISES} is one of explored"
    if made.scenarios and not made.explored:
        return "scenarios are those in which an exploration shows it, and explored is empty"
    if bool(made.histories) == (made.kind in WITHOUT_HISTORY):
        return "histories must not be empty, or must be where nothing is broken"
    named = [*made.histories, made.script] if made.script else [*made.histories]
    missing = [name for name in named if not (path.parent / name).is_file()]
    return f"{', '.join(missing)} is missing beside it" if missing else None


def misjudged(made: Page, folder: Path = FOLDER) -> list[str]:
    """One sentence for every history of a page that the checker judges otherwise."""
    found = []
    for name, verdict in made.histories.items():
        judged = check(read_jsonl(folder / name)).verdicts.get(verdict)
        if judged is None or judged.result != "invalid":
            is_ = "absent" if judged is None else judged.result
            found.append(f"{name}: {verdict} is {is_}, and the page says that it breaks")
    return found


def quotation(made: Page, folder: Path = FOLDER) -> str:
    """What the checker says of a page's histories about the verdict that each breaks; nothing
    without any."""
    if not made.histories:
        return ""
    blocks = []
    for name, verdict in made.histories.items():
        said = explained(verdict, check(read_jsonl(folder / name)).verdicts[verdict])
        blocks.append(f"\n`lockbench check docs/track/{name}`:\n\n```\n{said}\n```\n")
    return "".join(blocks) + "\n"


def with_quotation(text: str, quoted: str) -> str:
    """A page's text with what stands between the marks replaced. Raises BadPage without marks,
    which a page needs that has something to quote."""
    return text if not quoted else _between(text, QUOTED, quoted)


def with_list(text: str, found: Sequence[Page]) -> str:
    """The index with the table of all pages. Raises BadPage without marks."""
    table = markdown_table(
        ("what", "locks", "fault", "verdict", "kind", "k of n", "by explore"),
        (
            (
                Markdown(
                    f"[{made.title}]({made.id}.md)"
                    + (f", [script]({made.script})" if made.script else "")
                ),
                ", ".join(made.locks),
                made.fault,
                ", ".join(made.verdicts) or "-",
                made.kind,
                ", ".join(f"{lock} {k} of {n}".strip() for lock, (k, n) in made.tries.items()),
                ", ".join(made.explored) or f"no: {made.unexplored}",
            )
            for made in found
        ),
    )
    return _between(text, LISTED, f"\n{table}\n\n")


def _between(text: str, mark: str, put: str) -> str:
    before, begin, rest = text.partition(mark)
    _, end, after = rest.partition(QUOTED_END)
    if not (begin and end):
        raise BadPage(f"the marks {mark} and {QUOTED_END} are missing")
    return f"{before}{mark}\n{put}{end}{after}"


def history_of_case(run: RunFolder, number: int) -> Path:
    """The recording of the case of that number. Raises BadInput."""
    for case in run.cases():
        if case.path.name.partition("-")[0] == f"{number:02d}":
            return case.history
    raise BadInput(f"{run.path} has no case {number}")


def rewrite(folder: Path = FOLDER) -> list[Path]:
    """Brings the quotations and the index up to date; returns the files that changed. Raises
    BadPage, also where a history is not judged as its page says."""
    changed = []
    found = pages(folder)
    for made in found:
        if wrong := misjudged(made, folder):
            raise BadPage("; ".join(wrong))
        path = folder / f"{made.id}.md"
        try:
            changed += _put(path, with_quotation(_text(path), quotation(made, folder)))
        except BadPage as error:
            raise BadPage(f"{path.name}: {error}") from error
    changed += _put(folder / INDEX, with_list(_text(folder / INDEX), found))
    return changed


def _text(path: Path) -> str:
    """Raises BadPage."""
    try:
        return read_text(path)
    except BadFile as error:
        raise BadPage(str(error)) from error


def _put(path: Path, text: str) -> list[Path]:
    if _text(path) == text:
        return []
    write_atomically(path, text)
    return [path]


app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False)


@app.command()
def cut(
    run: Annotated[Path, typer.Argument(help="A run folder, or a history file.")],
    verdict: Annotated[str, typer.Option(help="The broken verdict to cut out.")],
    case: Annotated[int, typer.Option(help="The number of the case in the run.")] = 1,
) -> None:
    """Print the few operations that break a verdict as JSON Lines."""
    if not run.is_file():
        open_run(run).evidence()
    path = run if run.is_file() else history_of_case(open_run(run), case)
    print(lines(excerpt(load(path), verdict)), end="")


@app.command()
def count(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    lock: Annotated[str, typer.Option(help="The lock.")],
    fault: Annotated[str, typer.Option(help="The fault.")],
    topology: Annotated[str | None, typer.Option(help="The cluster, if only one counts.")] = None,
) -> None:
    """Print in how many of the stored runs of a lock under a fault each verdict broke, and in how
    many the key of the dead holder stayed locked."""
    counted = [
        (run, case)
        for run in runs
        for case in _cases_of(run)
        if (case.lock, case.fault) == (lock, fault)
        if topology in {None, case.topology}
    ]
    tried = [document for _, case in counted for document in attempts(case)]
    for verdict in sorted({v for document in tried for v in broken(document)}):
        times, of = k_of_n(tried, verdict)
        print(f"{verdict} {times} of {of}")
    looked_at = (
        dead_holder(case, partial(history_of, open_run(run), case)) for run, case in counted
    )
    struck = [it for it in looked_at if it is not None]
    if times := sum(it.locked for it in struck):
        print(f"locked {times} of {len(struck)}")


def _cases_of(run: Path) -> Sequence[CaseResult]:
    """The cases of a run; none, and a word about it, where it did not come to results, or where
    nothing of it can be counted."""
    try:
        found = stored(run)
        countable([found])
    except NotARun as error:
        print(printable(f"not counted: {error}"), file=sys.stderr)
        return []
    return found.cases


@app.command()
def write() -> None:
    """Bring the index and every quotation up to date."""
    for path in rewrite():
        print(path.name)


def main() -> None:
    """Bad input ends with 254 and one sentence."""
    try:
        app()
    except (BadInput, BadPage, Edited, NotARun, UnreadableHistory, OSError) as error:
        print(printable(f"track: {error}"), file=sys.stderr)
        sys.exit(BAD_INPUT)


if __name__ == "__main__":
    main()
