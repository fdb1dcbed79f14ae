"""``lockbench alerts RUN…``: which violation would have raised which alert, how late.

Reads stored runs whose histories are the ones that were judged; starts nothing. Always exits with 0
where it could answer: an alert that stays silent is a finding about the alert.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from lockbench.report.console import say_json
from lockbench.report.grid import drawn, texts
from lockbench.report.source import histories
from lockbench.results.alert_metrics import ALERTS, EVALUATION_S, PHASES_S, SCRAPE_S
from lockbench.results.alert_replay import REPEATED_S, replay
from lockbench.results.cases import lock_of, unknown_after_s
from lockbench.results.errors import BadInput
from lockbench.results.store import NotARun, open_run

OURS: Final = "lockbench"
READINGS: Final = ("recorded", "repeated")
LEGEND: Final = (
    "Each cell: as recorded / if the recorded seconds repeated for half an hour. Seconds run from "
    "the violation's first moment. unseen: never fired; anyway: fires without the violation as "
    "well; unclear: perhaps so; before: was firing already; none: no such metric (no fence). With "
    "--json: why."
)


def alerts(paths: Sequence[Path], *, as_json: bool, out: Console) -> int:
    """Returns the exit code. Raises BadInput."""
    runs = [_replayed(path) for path in paths]
    cases = [case for run, _ in runs for case in run]
    without = sum(missing for _, missing in runs)
    found = {
        "scrape_s": SCRAPE_S,
        "evaluation_s": EVALUATION_S,
        "phases_s": PHASES_S,
        "repeated_s": REPEATED_S,
        "alerts": [asdict(alert) | {"expr": alert.expr} for alert in ALERTS],
        "cases": cases,
        "cases_without_history": without,
        "summary": _summary(cases),
    }
    if as_json:
        say_json(found)
    else:
        _show(cases, out)
        if without:
            out.print(f"Cases without a history, of which nothing is known: {without}.")
    return 0


def _replayed(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The cases of a run that have a history, and the number of those that have none."""
    try:
        run = open_run(path)
        results = run.evidence()
        found = [
            {"run": str(path), "folder": case.folder, "lock": lock_of(case), "fault": case.fault}
            | replay(history, unknown_after_s=unknown_after_s(case)).to_json()
            for _, case, history in histories(run)
        ]
        return found, len(results.cases) - len(found)
    except NotARun as error:
        raise BadInput(str(error)) from error


def _summary(cases: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Violations, those seen in each reading by whose alerts, and cases with an alarm but without
    a violation."""
    violations = [violation for case in cases for violation in case["violations"]]
    made: dict[str, Any] = {"cases": len(cases), "violations": len(violations)}
    for reading in READINGS:
        for origin in ("field", OURS):
            made[f"{reading}_seen_by_{origin}"] = sum(
                any(s["word"] == "fires" and s["origin"] == origin for s in violation[reading])
                for violation in violations
            )
    clean = [case for case in cases if not case["violations"]]
    made["cases_without_violation"] = len(clean)
    made["repeated_alarms_without_violation"] = {
        alert.name: sum(bool(case["alarms"][alert.name]) for case in clean) for alert in ALERTS
    }
    return made


def _show(cases: Sequence[Mapping[str, Any]], out: Console) -> None:
    names = [alert.name + (" (ours)" if alert.origin == OURS else "") for alert in ALERTS]
    rows = [
        [
            f"{case['lock']}, {case['fault']}",
            violation["verdict"],
            violation["key"],
            f"{violation['at_s']:.1f}",
            *(
                f"{_cell(once)} / {_cell(again)}"
                for once, again in zip(violation["recorded"], violation["repeated"], strict=True)
            ),
        ]
        for case in cases
        for violation in case["violations"]
    ]
    if rows:
        headings = ["lock, fault", "violation", "resource", "at s", *names]
        out.print(drawn(texts("alerts", "Alert replay", headings, rows, LEGEND)))
    found = _summary(cases)
    n, clean = found["violations"], found["cases_without_violation"]
    out.print(
        f"{n} violations in {found['cases']} cases. As recorded, the recommended alerts notice "
        f"{found['recorded_seen_by_field']}, ours {found[f'recorded_seen_by_{OURS}']}; repeated, "
        f"{found['repeated_seen_by_field']} and {found[f'repeated_seen_by_{OURS}']}.",
    )
    alarms = found["repeated_alarms_without_violation"]
    told = ", ".join(f"{name} in {count}" for name, count in alarms.items())
    out.print(f"Cases without a violation in which they fire, repeated: {told} of {clean}.")


def _cell(sight: Mapping[str, Any]) -> str:
    if sight["word"] == "no metric":
        return "none"
    if sight["word"] != "fires":
        return str(sight["word"])
    first, last = sight["late_s"]
    some = "" if sight["phases"] == len(PHASES_S) else f" in {sight['phases']} of {len(PHASES_S)}"
    return f"{first:.0f} to {last:.0f} s{some}"
