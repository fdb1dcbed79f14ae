"""The metrics, the rules and their evaluation, held to promtool where it is on the machine."""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from lockbench.checker.check import check
from lockbench.history.columns import History
from lockbench.results.alert_metrics import (
    ACQUISITIONS,
    ALERTS,
    CONTENDED,
    EXPIRED,
    LEAD_S,
    PHASES_S,
    REFUSED,
    SCRAPE_S,
    Alert,
    Counters,
    Evaluated,
    Series,
    counter_at,
    counters,
    evaluate,
    held_for,
    range_value,
    rules,
)
from lockbench.results.alert_replay import ReplayedViolation, Sight, replay
from tests.checker.scenes import S, Scene

PROMTOOL = shutil.which("promtool")
needs_promtool = pytest.mark.skipif(PROMTOOL is None, reason="promtool is not on this machine")
CONTENTION, EXPIRY, STALE = ALERTS


# --- the file


def alert_blocks() -> dict[str, dict[str, str]]:
    """name → the keys below each alert of the file."""
    blocks: dict[str, dict[str, str]] = {}
    for part in re.split(r"^      - ", rules(), flags=re.MULTILINE)[1:]:
        found = dict(re.findall(r"^ *(\w+): ?(.*)$", part, flags=re.MULTILINE))
        if "alert" in found:
            blocks[found["alert"]] = found
    return blocks


def test_the_file_says_what_is_evaluated() -> None:
    blocks = alert_blocks()
    assert set(blocks) == {alert.name for alert in ALERTS}
    for alert in ALERTS:
        block = blocks[alert.name]
        assert block["expr"] == alert.expr
        assert block.get("for", "0m") == f"{alert.for_s / 60:g}m"
        assert block["origin"] == alert.origin
        assert {"labels", "annotations", "severity", "summary", "description"} <= set(block)
    assert rules().count("interval: 15s") == 2


def promtool(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    assert PROMTOOL is not None
    return subprocess.run(
        [PROMTOOL, *words], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


@needs_promtool
def test_promtool_accepts_the_file(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules(), encoding="utf-8")
    done = promtool(tmp_path, "check", "rules", "rules.yml")
    assert done.returncode == 0, done.stderr
    assert "4 rules found" in done.stdout


# --- the evaluation


def some_counters(seed: int, *, span_s: float = 400.0) -> Counters:
    """Bursts of increments on three resources, with silence between them."""
    luck = random.Random(seed)
    series = []
    for resource in ("a", "b", "c"):
        at = sorted(
            start + luck.uniform(0, length)
            for _ in range(luck.randint(1, 4))
            for start, length in [(luck.uniform(0, span_s * 0.9), luck.uniform(1, span_s * 0.5))]
            for _ in range(luck.randint(1, 150))
        )
        kept = [t for t in at if t < span_s]
        slow = [t for t in kept if luck.random() < luck.choice([0.1, 0.3, 0.6])]
        for metric, result, times in (
            (ACQUISITIONS, "granted", kept[::2]),
            (ACQUISITIONS, "denied", kept[1::2]),
            (CONTENDED, None, slow),
            (EXPIRED, None, slow[::3]),
            (REFUSED, None, slow[:: luck.randint(5, 50)]),
        ):
            at_ns = np.array([round(t * S) for t in times], np.int64)
            series.append(Series(metric, resource, result, at_ns))
    return Counters(tuple(series), 0, round(span_s * S))


def unit_test(counted: Counters, phase_s: float, cycles: int) -> tuple[dict[str, object], int]:
    """A file for `promtool test rules` (JSON is YAML) that expects what ``evaluate`` says at every
    evaluation; and how many alerts it expects to fire."""
    annotations = {
        name: {
            key: block[key].strip('"').replace("{{ $labels.resource }}", "%s")
            for key in ("summary", "description")
        }
        for name, block in alert_blocks().items()
    }
    expected, firing = [], 0
    found: dict[tuple[str, str], Evaluated] = {}
    for alert in ALERTS:
        for resource in ("a", "b", "c"):
            one = evaluate(alert, counted, resource, phase_s=phase_s, cycles=cycles, tail_s=500)
            assert one is not None
            found[alert.name, resource] = one
    at = next(iter(found.values())).at_s + LEAD_S + phase_s
    for i, time in enumerate(at):
        for alert in ALERTS:
            fires = [r for r in ("a", "b", "c") if found[alert.name, r].firing[i]]
            firing += len(fires)
            expected.append(
                {
                    "eval_time": f"{time:.0f}s",
                    "alertname": alert.name,
                    "exp_alerts": [
                        {
                            "exp_labels": {
                                "resource": resource,
                                "severity": alert_blocks()[alert.name]["severity"],
                                "origin": alert.origin,
                            },
                            "exp_annotations": {
                                key: text.replace("%s", resource)
                                for key, text in annotations[alert.name].items()
                            },
                        }
                        for resource in fires
                    ],
                }
            )
    # A sample every 5 s, of which two of three are missing, so that scrapes lie at 5, 20, 35 …
    scraped = np.arange(5.0, at[-1] + SCRAPE_S, SCRAPE_S)
    inputs = []
    for series in counted.series:
        values = counter_at(series, counted, scraped - LEAD_S - phase_s, cycles)
        result = f', result="{series.result}"' if series.result else ""
        inputs.append(
            {
                "series": f'{series.metric}{{resource="{series.resource}"{result}}}',
                "values": " ".join(f"_ {value:.0f} _" for value in values),
            }
        )
    test = {"interval": "5s", "input_series": inputs, "alert_rule_test": expected}
    return {"rule_files": ["rules.yml"], "evaluation_interval": "15s", "tests": [test]}, firing


@needs_promtool
@pytest.mark.parametrize("seed", range(6))
def test_alerts_fire_when_prometheus_says_so(seed: int, tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules(), encoding="utf-8")
    counted = some_counters(seed, span_s=[400.0, 37.0][seed % 2])
    made, firing = unit_test(counted, PHASES_S[seed % 3], cycles=[1, 20][seed % 2])
    (tmp_path / "test.yml").write_text(json.dumps(made), encoding="utf-8")
    done = promtool(tmp_path, "test", "rules", "test.yml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert firing > 0


@needs_promtool
def test_rates_are_those_of_prometheus(tmp_path: Path) -> None:
    (tmp_path / "rules.yml").write_text(rules(), encoding="utf-8")
    counted = some_counters(1)
    made, _ = unit_test(counted, 0.0, cycles=1)
    tests = made["tests"]
    assert isinstance(tests, list)
    expected = []
    for metric in (CONTENDED, EXPIRED, REFUSED):
        for function in ("rate", "increase"):
            # A threshold of its own, so that nothing but the value is compared.
            alert = Alert("value", "", function, metric, None, 0.0, 0.0)
            found = [evaluate(alert, counted, r, tail_s=500) for r in ("a", "b", "c")]
            for i in range(1, 40):
                samples = [
                    {"labels": f'{{resource="{resource}"}}', "value": float(one.value[i])}
                    for resource, one in zip("abc", found, strict=True)
                    if one is not None and not np.isnan(one.value[i])
                ]
                expr = alert.expr.removesuffix(" > 0")
                expected.append({"expr": expr, "eval_time": f"{i * 15}s", "exp_samples": samples})
    tests[0] |= {"alert_rule_test": [], "promql_expr_test": expected}
    (tmp_path / "test.yml").write_text(json.dumps(made), encoding="utf-8")
    done = promtool(tmp_path, "test", "rules", "test.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_promtool_sees_an_answer_that_is_off_by_one_evaluation(tmp_path: Path) -> None:
    """The comparison above can fail."""
    (tmp_path / "rules.yml").write_text(rules(), encoding="utf-8")
    made, _ = unit_test(some_counters(0), 0.0, cycles=1)
    tests = made["tests"]
    assert isinstance(tests, list)
    cells = [t for t in tests[0]["alert_rule_test"] if t["alertname"] == STALE.name]
    first = next(i for i, cell in enumerate(cells) if cell["exp_alerts"])
    cells[first - 1]["exp_alerts"] = cells[first]["exp_alerts"]
    (tmp_path / "test.yml").write_text(json.dumps(made), encoding="utf-8")
    assert promtool(tmp_path, "test", "rules", "test.yml").returncode == 1


def test_rate_is_extrapolated_as_prometheus_does() -> None:
    """By hand: samples 15 s apart, the last 10 s before the evaluation at 60 s."""
    scraped = np.array([5.0, 20.0, 35.0, 50.0])
    at = np.array([60.0])
    # 90 in 45 s; the ends (5 s and 10 s) are within 1.1 intervals, so 60 s are covered: 120 in all.
    counter = np.array([1000.0, 1030.0, 1060.0, 1090.0])
    assert range_value(scraped, counter, at, 60.0, per_second=True) == pytest.approx(2.0)
    assert range_value(scraped, counter, at, 60.0, per_second=False) == pytest.approx(120.0)
    # From zero on, nothing is added before the first sample: 45 + 10 s.
    counter = np.array([0.0, 0.0, 0.0, 9.0])
    assert range_value(scraped, counter, at, 60.0, per_second=False) == pytest.approx(9 * 55 / 45)
    assert np.isnan(range_value(scraped[:1], counter[:1], at, 60.0, per_second=True))


def test_a_condition_that_lapses_begins_to_wait_again() -> None:
    active = np.array([True, True, False, True, True, True, True])
    at = np.arange(0.0, 105.0, 15.0)
    assert held_for(active, at, 30.0).tolist() == [False] * 5 + [True, True]
    assert held_for(active, at, 0.0).tolist() == active.tolist()


def test_a_recording_is_played_again_without_a_gap() -> None:
    counted = Counters((Series(EXPIRED, "a", None, np.array([S, 3 * S])),), 0, 10 * S)
    at = np.array([-1.0, 0.0, 1.0, 9.9, 11.0, 13.0, 19.0, 21.0, 1000.0])
    found = counter_at(counted.series[0], counted, at, cycles=2)
    assert found.tolist() == [0, 0, 1, 2, 3, 4, 4, 4, 4]


# --- the metrics


def times(history: History, metric: str, result: str | None = None) -> list[float]:
    """When the counter of a metric of k0 went up, in seconds."""
    found = counters(history, unknown_after_s=1.0).of(metric, "k0")
    return [t / S for series in found if series.result == result for t in series.at_ns.tolist()]


def test_acquisitions_by_result_and_contention() -> None:
    scene = Scene().acquire("a", 1.0, 1.1, until=4.0).release("a", 2.0, 2.1)
    scene.acquire("b", 1.5, 2.2, until=5.0).release("b", 3.0, 3.1)  # waited for a
    scene.acquire("c", 2.5, 2.6, "fail", error="held")
    scene.acquire("d", 4.0, None, "info")
    scene.acquire("e", 6.0, 6.1, until=9.0).release("e", 6.2, 6.3)  # found it free
    history = scene.history()
    assert times(history, ACQUISITIONS, "granted") == [1.1, 2.2, 6.1]
    assert times(history, ACQUISITIONS, "denied") == [2.6]
    assert times(history, ACQUISITIONS, "unknown") == [5.0]
    assert times(history, CONTENDED) == [2.2, 2.6]


def test_a_semaphore_with_free_permits_is_not_contended() -> None:
    scene = Scene().kind("semaphore", permits=2)
    for n, client in enumerate("abc"):
        scene.acquire(client, 1 + n * 0.1, 1.05 + n * 0.1, until=9.0)
    assert times(scene.history(), CONTENDED) == [1.25]


def test_expiry_is_counted_once_and_when_the_holder_can_see_it() -> None:
    scene = Scene().acquire("a", 1, 1.1, until=4).release("a", 5, 5.1)  # released after its lease
    scene.acquire("b", 6, 6.1, until=9).lost("b", 7).not_held("b", 8, 8.1)  # told, and told again
    scene.acquire("c", 10, 10.1, until=13).not_held("c", 11, 11.1)  # somebody else ended it
    scene.acquire("d", 14, 14.1, until=17).release("d", 15, 15.1)  # in time
    scene.acquire("e", 18, 18.1, until=21).death("e", 19)  # nobody is left to count
    scene.acquire("f", 30, 30.1, until=33)  # never released
    assert times(scene.history(), EXPIRED) == [5.1, 7.0, 11.1]


def test_a_hold_inside_a_hold_neither_contends_nor_expires() -> None:
    scene = Scene().kind("reentrant")
    scene.acquire("a", 1, 1.1, until=4, hold="h1").acquire("a", 2, 2.1, until=4, hold="h2")
    scene.release("a", 5, 5.1, hold="h2").release("a", 6, 6.1, hold="h1")
    assert times(scene.history(), CONTENDED) == []
    assert times(scene.history(), EXPIRED) == [6.1]
    scene = Scene().kind("reentrant")
    scene.acquire("a", 1, 1.1, until=4, hold="h1").acquire("a", 2, 2.1, until=4, hold="h2")
    scene.lost("a", 3, hold="h2").lost("a", 3, hold="h1")
    assert times(scene.history(), EXPIRED) == [3.0]


def with_writes(seed: int) -> History:
    luck = random.Random(seed)
    scene = Scene()
    for n in range(12):
        scene.acquire(f"c{n}", n, n + 0.01, until=n + 0.9, fence=n + 1)
    moments = sorted((n + luck.uniform(0.05, 4.0), n) for n in range(12) for _ in range(2))
    for version, (at, n) in enumerate(moments):
        scene.write(f"c{n}", at, version, version + 1)
    return scene.history()


@pytest.mark.parametrize("seed", range(20))
def test_refused_writes_are_those_of_the_checkers_scoring(seed: int) -> None:
    history = with_writes(seed)
    fencing = check(history).measurements["fencing"]
    assert isinstance(fencing, dict)
    score = fencing["fence-on-write"]
    refused = times(history, REFUSED)
    assert len(refused) == score["stale_refused"] + score["valid_refused"] > 0


def test_a_lock_without_fences_has_no_refusals_to_count() -> None:
    history = Scene().acquire("a", 1, 1.1, until=4).history()
    assert counters(history).of(REFUSED, "k0") == []
    assert evaluate(STALE, counters(history), "k0") is None


# --- which alert fires


def sight(violation: ReplayedViolation, alert: Alert, reading: str) -> Sight:
    found: Sight = next(s for s in getattr(violation, reading) if s.alert == alert.name)
    return found


def firing(violation: ReplayedViolation, reading: str) -> list[str]:
    """The alerts that tell a violation from its absence."""
    return [s.alert for s in getattr(violation, reading) if s.word == "fires"]


def quiet_cycles(scene: Scene, begin: float, count: int, *, fenced: bool = True) -> None:
    """Uncontended cycles of 0.2 s of one client."""
    for n in range(count):
        at = begin + n * 0.2
        scene.acquire(
            "q", at, at + 0.01, until=at + 3, hold=f"q{at}", fence=n + 1 if fenced else None
        )
        scene.release("q", at + 0.05, at + 0.06, hold=f"q{at}")


def test_a_double_grant_is_in_no_metric() -> None:
    scene = Scene()
    quiet_cycles(scene, 0, 50)
    scene.acquire("a", 11, 11.1, until=14, fence=100).acquire("b", 12, 12.1, until=15, fence=101)
    scene.release("a", 12.5, 12.6).release("b", 13, 13.1)
    (found,) = replay(scene.history()).violations
    assert found.verdict == "double-grant"
    assert found.at_s == pytest.approx(12.1)
    assert firing(found, "recorded") == firing(found, "repeated") == []
    assert sight(found, EXPIRY, "repeated").why == "its counter did not move after the violation"


def stale(*, fenced: bool) -> History:
    scene = Scene()
    fence = 100 if fenced else None
    scene.acquire("q", 0, 0.01, until=3).release("q", 0.1, 0.11)
    scene.acquire("a", 1, 1.1, until=4, fence=fence).read("a", 1.2, 0)
    scene.acquire("b", 4.1, 4.2, until=7, fence=fence and 101).read("b", 4.3, 0)
    scene.write("b", 4.4, 0, 1).release("b", 4.5, 4.6)
    scene.write("a", 6, 0, 2).release("a", 6.1, 6.2)
    quiet_cycles(scene, 8, 60, fenced=False)
    return scene.history()


def test_a_stale_holder_shows_at_once_where_the_resource_checks_fences() -> None:
    found = next(v for v in replay(stale(fenced=True)).violations if v.verdict == "stale-holder")
    assert firing(found, "recorded") == [STALE.name]
    late = sight(found, STALE, "recorded").late_s
    # It waits for a scrape, up to 15 s, and then 10 s for the evaluation.
    assert late is not None
    assert 10 <= late[0] < late[1] <= 25


def test_a_stale_holder_without_fences_is_below_the_recommended_threshold() -> None:
    found = next(v for v in replay(stale(fenced=False)).violations if v.verdict == "stale-holder")
    assert firing(found, "recorded") == firing(found, "repeated") == []
    assert sight(found, STALE, "recorded").word == "no metric"
    # One in 20 s, though it goes on for half an hour.
    assert "threshold 0.1" in sight(found, EXPIRY, "repeated").why


def test_expiries_fire_after_their_two_minutes_where_they_are_many() -> None:
    scene = Scene()
    for n in range(100):  # every 2 s a hold that outlives its lease
        at = 1.0 + 2 * n
        scene.acquire("a", at, at + 0.1, until=at + 0.5, hold=f"a{n}")
        scene.acquire("b", at + 0.6, at + 0.7, until=at + 3, hold=f"b{n}")
        scene.write("a", at + 1, 2 * n, 2 * n + 1, hold=f"a{n}")
        scene.release("a", at + 1.1, at + 1.2, "fail", error="not-held", hold=f"a{n}")
        scene.release("b", at + 1.3, at + 1.4, hold=f"b{n}")
    found = next(v for v in replay(scene.history()).violations if v.verdict == "stale-holder")
    assert firing(found, "recorded") == [EXPIRY.name]
    late = sight(found, EXPIRY, "recorded").late_s
    assert late is not None
    assert 120 < late[0] < late[1] < 180


def busy(scene: Scene, begin: float, count: int) -> None:
    """Two clients that always find the lock taken."""
    for n in range(count):
        at = begin + n * 0.1
        scene.acquire(n % 2, at - 0.09, at + 0.01, until=at + 3, hold=f"x{begin}-{n}")
        scene.release(n % 2, at + 0.06, at + 0.07, hold=f"x{begin}-{n}")


def test_contention_that_was_there_before_says_nothing() -> None:
    scene = Scene()
    busy(scene, 1, 100)
    scene.fault("wipe", 11.5, 12)
    scene.acquire("a", 12, 12.1, until=15).acquire("b", 13, 13.1, until=16)
    scene.release("a", 14, 14.1).release("b", 14.2, 14.3)
    busy(scene, 15, 50)
    (found,) = replay(scene.history()).violations
    assert sight(found, CONTENTION, "repeated").word == "anyway"
    assert "has to be for 300 s" in sight(found, CONTENTION, "recorded").why


def test_contention_that_came_with_the_violation_is_noticed_after_five_minutes() -> None:
    scene = Scene()
    quiet_cycles(scene, 0, 50)
    scene.fault("wipe", 10.5, 11)
    scene.acquire("a", 12, 12.1, until=15).acquire("b", 13, 13.1, until=16)
    scene.release("a", 14, 14.1).release("b", 14.2, 14.3)
    busy(scene, 15, 100)
    (found,) = replay(scene.history()).violations
    seen = sight(found, CONTENTION, "repeated")
    assert seen.word == "fires"
    assert seen.late_s is not None
    assert seen.late_s[0] > 300


def test_without_a_load_before_it_stays_open_whether_contention_tells_anything() -> None:
    scene = Scene().acquire("a", 0, 0.1, until=3).acquire("b", 1, 1.1, until=4)
    scene.release("a", 1.5, 1.6).release("b", 1.7, 1.8)
    busy(scene, 3, 100)
    (found,) = replay(scene.history()).violations
    assert sight(found, CONTENTION, "repeated").word == "unclear"
    assert firing(found, "repeated") == []


def test_a_lock_that_stays_taken_after_its_holder_died() -> None:
    scene = Scene()
    quiet_cycles(scene, 0, 20)
    scene.acquire("a", 5, 5.1).death("a", 6)  # no lease: nobody ever gets it
    for n in range(20):
        scene.acquire(f"w{n}", 6 + n, 6.9 + n, "fail", error="gave-up: held")
    (found,) = replay(scene.history()).violations
    assert (found.verdict, found.at_s) == ("leaked-lock", 6.0)
    assert firing(found, "recorded") == []
    assert firing(found, "repeated") == [CONTENTION.name]


def test_a_sound_history_raises_nothing() -> None:
    scene = Scene()
    quiet_cycles(scene, 0, 100)
    found = replay(scene.history())
    assert found.violations == ()
    assert set(found.alarms) == {alert.name for alert in ALERTS}
    assert not any(found.alarms.values())
