"""Draws what is wrong: lanes per client, holds, faults, the violation marked. One SVG a verdict.

Only the neighbourhood of the evidence is drawn, so a history of any length stays usable: at most
``ROWS_MAX`` operations and ``LANES_MAX`` clients, those of the evidence first. The page needs
nothing from outside; without JavaScript it is still a drawing, with it one can pan (drag), zoom
(wheel) and return (double click). ``figure`` is one drawing, for reports; ``page`` a document of
its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

import numpy as np

from checker.promises import FOREVER, Links, Rows, link, promises
from checker.verdict import Report, Verdict
from checker.words import Case, describe, operation
from history.columns import History
from history.op import NULL, F, Type

ROWS_MAX: Final = 1500
LANES_MAX: Final = 40
MARGIN: Final = 0.35  # of the evidence's span, on either side
WIDTH, LABELS, LANE, TOP = 1000, 160, 26, 44  # in the units of the drawing
TICKS: Final = 8

STYLE: Final = """
body{font:14px/1.45 system-ui,sans-serif;margin:2em;max-width:1200px;color:#1a1a1a}
figure{margin:1.2em 0 2.4em}figcaption{margin-bottom:.5em}
svg{width:100%;border:1px solid #ccc;background:#fff;cursor:grab;touch-action:none}
svg text{font:11px system-ui,sans-serif;fill:#444}
.fault{fill:#f3a712;opacity:.18}.clash{fill:#d7263d;opacity:.16}
.promised{fill:#2e86ab}.unpromised{fill:#2e86ab;opacity:.3}
.ask{stroke:#888;stroke-width:3}.unknown{stroke:#888;stroke-width:3;stroke-dasharray:5 4}
.fail{stroke:#c9c9c9;stroke-width:3}.use{fill:#1b4332}
.lane{stroke:#eee}.marked{stroke:#d7263d;stroke-width:2.5}
rect,line{vector-effect:non-scaling-stroke}
.legend span{display:inline-block;width:1.2em;height:.8em;margin:0 .3em 0 1em}
"""

SCRIPT: Final = """
for(const svg of document.querySelectorAll('svg.lanes')){
 const g=svg.querySelector('.plot'),axis=svg.querySelector('.axis'),L=+svg.dataset.labels,
  W=+svg.dataset.width,t0=+svg.dataset.begin,t1=+svg.dataset.end;let k=1,x=0;
 const draw=()=>{g.setAttribute('transform',`matrix(${k},0,0,1,${L+x},0)`);axis.textContent='';
  const a=t0+(t1-t0)*(-x/k)/W,b=t0+(t1-t0)*((W-x)/k)/W,
   d=Math.min(9,Math.max(3,Math.ceil(-Math.log10((b-a)/8))));
  for(let i=0;i<8;i++){const e=document.createElementNS('http://www.w3.org/2000/svg','text');
   e.setAttribute('x',L+W*i/8);e.setAttribute('y',14);
   e.textContent=(a+(b-a)*i/8).toFixed(d)+' s';axis.append(e)}};
 const at=e=>(e.clientX-svg.getBoundingClientRect().left)*(L+W)/svg.clientWidth-L;
 svg.addEventListener('wheel',e=>{e.preventDefault();const f=Math.exp(-e.deltaY/400),
  n=Math.min(1e6,Math.max(.2,k*f)),p=at(e);x=p-(p-x)*n/k;k=n;draw()},{passive:false});
 let from=null;
 svg.addEventListener('pointerdown',e=>{from=at(e)-x;svg.setPointerCapture(e.pointerId)});
 svg.addEventListener('pointermove',e=>{if(from!==null){x=at(e)-from;draw()}});
 svg.addEventListener('pointerup',()=>{from=null});
 svg.addEventListener('dblclick',()=>{k=1;x=0;draw()});draw();svg.dataset.ready='yes'}
"""

LEGEND: Final = (
    '<p class="legend"><span style="background:#2e86ab"></span>promised'
    '<span style="background:#2e86ab;opacity:.3"></span>still acting, no longer promised'
    '<span style="background:#888;height:3px"></span>asking'
    '<span style="background:#f3a712;opacity:.4"></span>fault'
    '<span style="outline:2px solid #d7263d"></span>violation. '
    "Drag to pan, wheel to zoom, double click to return; hover for what happened.</p>"
)


@dataclass(frozen=True)
class _View:
    """The window that is drawn, and how times and clients become places."""

    case: Case
    links: Links
    begin: int
    end: int
    rows: Rows
    lanes: Mapping[int, int]
    marked: frozenset[int]

    def x(self, time: int) -> float:
        return WIDTH * (min(max(time, self.begin), self.end) - self.begin) / (self.end - self.begin)

    def y(self, row: int) -> int:
        return TOP + LANE * self.lanes[int(self.case.history.process[row])]

    @property
    def height(self) -> int:
        return TOP + LANE * len(self.lanes) + 8


def page(drawn: Sequence[tuple[str, History, Report]]) -> str:
    """A document with every violation of some histories, given with their names."""
    body = []
    for name, history, report in drawn:
        body.append(f"<h1>{escape(name)}: {report.result}</h1>")
        body.append(
            f"<p>{report.operations} operations, {report.grants} grants; "
            + "; ".join(f"{escape(n)} {v.result}" for n, v in report.verdicts.items())
            + "</p>"
        )
        figures = [figure(history, n, v) for n, v in report.verdicts.items()]
        body.extend(figure for figure in figures if figure)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Lockbench check</title>'
        f"<style>{STYLE}</style></head><body>{LEGEND}{''.join(body)}"
        f"<script>{SCRIPT}</script></body></html>\n"
    )


def figure(history: History, name: str, verdict: Verdict) -> str:
    """One verdict drawn, or nothing where there is no operation to show. ``STYLE`` and ``SCRIPT``
    belong on the page once."""
    rows = sorted({int(str(e["row"])) for e in verdict.evidence if "row" in e})
    if not rows or verdict.result == "valid":
        return ""
    links = link(history)
    view = _view(Case(history, promises(history, links)), links, rows)
    origin = int(history.invoke_ns[0])
    parts = "".join(_parts(view))
    return (
        f"<figure><figcaption><b>{escape(name)}: {verdict.result}.</b> {escape(verdict.reason)}"
        f'</figcaption><svg class="lanes" viewBox="0 0 {LABELS + WIDTH} {view.height}" '
        f'data-labels="{LABELS}" data-width="{WIDTH}" data-begin="{(view.begin - origin) / 1e9}" '
        f'data-end="{(view.end - origin) / 1e9}"><g class="plot" '
        f'transform="matrix(1,0,0,1,{LABELS},0)">{parts}</g>'
        f'<rect x="0" y="0" width="{LABELS}" height="{view.height}" fill="#fff"/>'
        f'{"".join(_labels(view))}<g class="axis">{"".join(_axis(view, origin))}</g></svg></figure>'
    )


def _view(case: Case, links: Links, marked: Sequence[int]) -> _View:
    history = case.history
    evidence = np.array(marked)
    times = [int(t) for t in history.invoke_ns[evidence]]
    times += [int(t) for t in history.complete_ns[evidence] if t != NULL]
    grant_of = {int(row): i for i, row in enumerate(case.promises.row)} if len(marked) < 100 else {}
    for row in marked:
        i = grant_of.get(row)
        if i is not None and case.promises.end[i] < FOREVER:
            times.append(int(case.promises.end[i]))
    low, high = min(times), max(times)
    margin = max(1, int((high - low) * MARGIN))
    begin, end = low - margin, high + margin
    done = np.where(history.complete_ns == NULL, history.invoke_ns, history.complete_ns)
    near = np.isin(history.key, history.key[evidence])
    near &= (history.invoke_ns <= end) & (done >= begin)
    near[evidence] = True
    rows = np.flatnonzero(near)
    if len(rows) > ROWS_MAX:
        # The nearest in the order of the history, so that the picture stays whole around it.
        middle = int(np.median(np.searchsorted(rows, evidence)))
        first = max(0, min(middle - ROWS_MAX // 2, len(rows) - ROWS_MAX))
        rows = np.union1d(rows[first : first + ROWS_MAX], evidence)
    # The holds under which something was done here, though they may have begun long before.
    rows = np.union1d(rows, links.acquire[links.under(rows)])
    lanes = _lanes(history, rows, evidence)
    shown = np.isin(history.process[rows], np.array(list(lanes)))
    return _View(case, links, begin, end, rows[shown], lanes, frozenset(marked))


def _lanes(history: History, rows: Rows, evidence: Rows) -> dict[int, int]:
    """Clients from top to bottom: those of the evidence, then the others as they appear."""
    order = dict.fromkeys([*history.process[evidence].tolist(), *history.process[rows].tolist()])
    return {process: lane for lane, process in enumerate(list(order)[:LANES_MAX])}


def _parts(view: _View) -> Iterator[str]:
    history = view.case.history
    for fault in history.faults:
        healed = view.end if fault.heal_ns is None else fault.heal_ns[1]
        if fault.begin_ns[0] < view.end and healed > view.begin:
            span = (fault.begin_ns[0], healed)
            yield _rect("fault", view, span, describe(fault), y=0, height=view.height)
    holds = [i for i in _holds(view) if int(view.case.promises.row[i]) in view.marked]
    if len(holds) > 1:
        begin = max(int(view.case.promises.start[i]) for i in holds)
        end = min(int(view.case.promises.end[i]) for i in holds)
        if begin < end:
            tall = view.height - TOP
            yield _rect("clash", view, (begin, end), "both held it", y=TOP - 8, height=tall)
    for i in _holds(view):
        yield from _hold(view, i)
    for row in view.rows.tolist():
        yield _operation(view, row)


def _holds(view: _View) -> Rows:
    return np.flatnonzero(np.isin(view.case.promises.row, view.rows))


def _hold(view: _View, i: int) -> Iterator[str]:
    """The promised part, and after it the time in which the holder still acted."""
    history, held = view.case.history, view.case.promises
    row = int(held.row[i])
    text = str(operation(view.case, row)["text"])
    y = view.y(row) - 8
    marked = " marked" if row in view.marked else ""
    start, end = int(held.start[i]), int(held.end[i])
    if start < end:
        yield _rect(f"promised{marked}", view, (start, min(end, view.end)), text, y=y, height=16)
    under = view.rows[view.links.acquire[view.rows] == row]
    acted = int(history.invoke_ns[under].max()) if len(under) else end
    if acted > end:
        title = f"{text}; still acting after the promise"
        yield _rect("unpromised", view, (max(start, end), acted), title, y=y, height=16)


def _operation(view: _View, row: int) -> str:
    history = view.case.history
    begin, end, outcome = (
        int(history.invoke_ns[row]), int(history.complete_ns[row]), history.type[row],
    )  # fmt: skip
    title = f"<title>{escape(str(operation(view.case, row)['text']))}</title>"
    y = view.y(row)
    marked = " marked" if row in view.marked else ""
    if (
        history.f[row] in {F.READ, F.WRITE, F.CAS, F.ADD, F.EFFECT}
        and history.applied_ns[row] != NULL
    ):
        x = view.x(int(history.applied_ns[row]))
        place = f'x="{x:.3f}" y="{y - 5}" width=".8" height="10"'
        return f'<rect class="use{marked}" {place}>{title}</rect>'
    kind = "unknown" if outcome == Type.INFO else "fail" if outcome == Type.FAIL else "ask"
    x2 = WIDTH if end == NULL else view.x(end)
    x1 = view.x(begin)
    return (
        f'<line class="{kind}{marked}" x1="{x1:.3f}" x2="{max(x2, x1 + 0.5):.3f}" y1="{y + 10}" '
        f'y2="{y + 10}">{title}</line>'
    )


def _rect(kind: str, view: _View, span: tuple[int, int], text: str, *, y: int, height: int) -> str:
    x = view.x(span[0])
    width = max(view.x(span[1]) - x, 0.5)
    return (
        f'<rect class="{kind}" x="{x:.3f}" y="{y}" width="{width:.3f}" height="{height}">'
        f"<title>{escape(text)}</title></rect>"
    )


def _labels(view: _View) -> Iterator[str]:
    for process, lane in view.lanes.items():
        name = escape(view.case.history.client(process))
        yield f'<text x="4" y="{TOP + LANE * lane + 4}">{name}</text>'


def _axis(view: _View, origin: int) -> Iterator[str]:
    for i in range(TICKS):
        time = view.begin - origin + (view.end - view.begin) * i // TICKS
        yield f'<text x="{LABELS + WIDTH * i / TICKS:.0f}" y="14">{time / 1e9:.3f} s</text>'
