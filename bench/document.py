"""The document of a case: what was asked for, what happened, what it is judged to be.

Judged while the cluster is cleared away. Guarantees: a case of which nothing is known has a
document too, and figures of a load that did not last as long as its phases are void.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

from msgspec.structs import asdict as shallow
from msgspec.structs import replace

from lockbench.bench.footprint import footprint
from lockbench.bench.generator import generator_health
from lockbench.bench.judge import judge
from lockbench.bench.outside import documented, told
from lockbench.bench.plan import PUBLISHED, Case, expected_of, topology_of, workers_of
from lockbench.bench.scene import CONTENDED, END, OWN, PlayedStep, Scene
from lockbench.bench.usable import (
    error_texts,
    never_succeeded,
    nothing_worked,
    said_to_idle_clients,
    turned_away,
)
from lockbench.checker.catalogue import ALWAYS, AT_THE_RESOURCE
from lockbench.checker.check import check
from lockbench.checker.clocks import at_least, on_one_clock
from lockbench.checker.exposure import Exposure, exposure
from lockbench.checker.service import contradictions
from lockbench.checker.verdict import Report
from lockbench.history.columns import History
from lockbench.history.lines import UnreadableHistory
from lockbench.history.op import Fault
from lockbench.history.recording import read_recording
from lockbench.locks.registry import is_own, origin
from lockbench.nemesis.registry import NONE
from lockbench.results import documents
from lockbench.results.cases import judged
from lockbench.results.documents import made
from lockbench.results.knee import not_granted
from lockbench.results.numbers import Phases as Spans
from lockbench.results.numbers import before, measure
from lockbench.results.on_machines import on_machines
from lockbench.results.rates import Block, step_of


def document_of(
    scene: Scene, failure: str | None, shown_before: frozenset[str]
) -> documents.CaseResult:
    """The case as it stands in ``results.json``, but for what is known once it is over."""
    case, expected = scene.case, expected_of(scene.case)
    begun = time.monotonic()
    document = _asked(scene)
    report: Report | None = None
    short: str | None = None
    seen = Exposure(False, ("the load did not run",))
    if scene.start_ns is not None:
        try:
            recorded = read_recording(scene.folder / "history")
        except UnreadableHistory as error:
            failure = "; ".join(filter(None, (failure, f"its history cannot be read: {error}")))
        else:
            report = check(recorded)
            history = on_one_clock(recorded)
    # Judged meanwhile. A case that could not be cleared away is no good one.
    left = scene.cleared()
    failure = "; ".join(filter(None, (failure, left))) or None
    disturbed = _disturbed(scene, left)
    if report is not None and scene.start_ns is not None:
        scene.unable = nothing_worked(history, case.phases.ends_ns(scene.start_ns)[1])
        seen = _seen(scene, at_least(recorded), report)
        document = _with_numbers(scene, scene.start_ns, judged(document, report), recorded)
        if failure is not None or disturbed is not None:
            # What was seen of a load that did not last as long as its phases is no number.
            document = replace(document, numbers="void")
            scene.before_ns, scene.blocks = {}, ()
        short = _short(case, document, history)
    observed = {} if report is None else {v: r.result for v, r in report.verdicts.items()}
    judgement = judge(
        expected,
        observed,
        exposed=seen.exposed,
        exposure="; ".join(seen.reasons),
        failure=failure,
        unable=scene.unable,
        short=short,
        shown_before=shown_before,
        required=required_of(case),
        contradicted={} if report is None else contradictions(report),
        disturbed=disturbed,
    )
    scene.timings.check_s = time.monotonic() - begun
    return replace(
        document,
        declare=tuple(expected.proposal([v for v, r in observed.items() if r == "invalid"])),
        no_record=scene.no_record,
        outside=documented(scene.outside, scene.start_ns or 0),
        observed=observed,
        exposed=seen.exposed,
        exposure=documents.Exposure(seen.exposed, seen.reasons),
        judgement=judgement.word,
        why=judgement.why,
        ending=judgement.ending.word,
    )


def _asked(scene: Scene) -> documents.CaseResult:
    """What was asked for, and what is known of it without a load."""
    case, system, expected = scene.case, scene.case.system, expected_of(scene.case)
    topology = topology_of(case)
    return documents.CaseResult(
        lock=system.name,
        family=system.family,
        fence=system.fence,
        topology=case.topology,
        size=case.size,
        fault=case.fault if case.injections else NONE,
        workload=case.workload,
        resource=case.resource,
        network=case.network,
        seed=case.seed,
        clients=case.clients,
        keys=case.keys,
        expected=dict(expected.words(required_of(case))),
        injections=tuple(made(documents.Injection, asdict(one)) for one in case.injections),
        settings={**topology.settings, **asdict(case.pace)},
        phases_s=made(documents.PhasesS, asdict(case.phases)),
        link_us=documents.Link(**scene.link_us),
        folder=scene.folder.name,
        own=made(documents.Own, origin(case.lock)) if is_own(case.lock) else None,
        numbers="void",
        consensus=topology.quorum,
        control=any(
            e.kind == "control"
            for name in expected.faults
            for e in system.expectations.get(name, {}).values()
        ),
    )


def _seen(scene: Scene, history: History, report: Report) -> Exposure:
    """Whether what was to be tested took place."""
    case = scene.case
    if scene.unable is not None:
        return Exposure(False, (scene.unable,))
    seen = exposure(history)
    if case.workload == PUBLISHED:  # without contention; something must have happened
        seen = Exposure(report.grants > 0, (f"{report.grants} grants of keys that nobody shares",))
    if len(scene.faults) < len(case.injections):
        played = f"{len(scene.faults)} of {len(case.injections)} faults were played"
        seen = Exposure(False, (*seen.reasons, played))
    missing = _missing(case, history)
    return seen if missing is None else Exposure(False, (missing, *seen.reasons))


def _disturbed(scene: Scene, left: str | None) -> str | None:
    """What happened from outside, if anything did."""
    if not scene.outside:
        return None
    return "; ".join(filter(None, (told(scene.outside, scene.start_ns or 0), left)))


def _short(case: Case, document: documents.CaseResult, history: History) -> str | None:
    """What of the load did not take place. Under a fault and in the published experiment that is
    part of what is looked at."""
    generator = document.generator
    if generator is None or case.injections or case.workload == PUBLISHED or not generator.short:
        return None
    why = list(generator.short)
    if any(worker.idle_users for worker in generator.workers):
        why.append(f"who was never granted was told: {said_to_idle_clients(history) or 'nothing'}")
    return "; ".join(why)


def _missing(case: Case, history: History) -> str | None:
    """Which operation never succeeded on the keys that the load shares. The published experiment
    shares none, and what takes no lock has none."""
    if case.workload == PUBLISHED or case.system.kind == "none":
        return None
    return never_succeeded(history, too_late=case.asked.outlasts)


def required_of(case: Case) -> tuple[str, ...]:
    """What the lock is always judged by, and what the workload gives reason to reach. Who holds on
    for longer than the lease may have nothing left to release."""
    beside = (*AT_THE_RESOURCE, "wrong-release") if case.asked.outlasts else AT_THE_RESOURCE
    lock_alone = tuple(v for v in ALWAYS if v not in beside)
    # Nobody is there to ask for the keys of the published experiment when it is over.
    after = () if case.workload == PUBLISHED or case.system.kind == "none" else ("leaked-lock",)
    store = () if case.resource is None else ("broken-guard",)
    seen = case.asked.workload.verdicts
    if case.store is not None and case.store.guard.rule == "once":
        seen = tuple(v for v in seen if v != "lost-update")  # there are no versions
    return (*lock_alone, *after, *seen, *store)


def _with_numbers(
    scene: Scene, start_ns: int, document: documents.CaseResult, recorded: History
) -> documents.CaseResult:
    case, history = scene.case, on_one_clock(recorded)
    floor_end, own_end, end, _ = case.phases.ends_ns(start_ns)
    patient = case.asked.workload.patient and (bool(case.injections) or not turned_away(history))
    health = generator_health(
        scene.folder / "logs",
        scene.faults,
        (floor_end, end),
        workers_of(case) + 1,
        patient=patient,
        pressure=scene.pressure,
        parts_ns={"own": (floor_end, own_end), "contended": (own_end, end)},
    )
    if scene.beside is not None:
        health = replace(health, ok=False, why=(scene.beside, *health.why))
    spans = Spans((start_ns, floor_end), (floor_end, own_end), (own_end, end))
    numbers = measure(recorded, spans, unknown_after_s=case.pace.client_timeout_s)
    if case.workload == PUBLISHED:
        numbers = replace(numbers, cycles_per_second=numbers.own_cycles_per_second)
    elif health.ok:
        scene.before_ns = before(recorded, spans, unknown_after_s=case.pace.client_timeout_s)
    scene.blocks = [_block(scene, step, history) for step in scene.steps]
    acquire = numbers.floor_acquire_ms
    cpu_us = scene.floor_cpu_ns / 1e3 / acquire.count if acquire.count else None
    found = document.measurements
    recovered_s = [one.servers_s for one in found.recovery or () if one.servers_s is not None]
    unrecovered_s = _unrecovered_s(found.recovery or (), history.faults, end)
    metered = {"own": (OWN, CONTENDED), "contended": (CONTENDED, END)}
    return replace(
        document,
        **shallow(numbers),
        machines=tuple(on_machines(recorded)),
        rates=tuple(block.step for block in scene.blocks),
        floor=documents.Floor(acquire.count, cpu_us, acquire.p50),
        generator=health,
        numbers="valid" if health.ok else "void",
        footprint=footprint(scene.readings, metered, history),
        availability=None if found.availability is None else found.availability.fraction,
        recovery_seconds=max(recovered_s, default=None) if unrecovered_s is None else None,
        unrecovered_seconds=unrecovered_s,
        error_texts=error_texts(history),
    )


def _unrecovered_s(
    recovery: Sequence[documents.Recovery], faults: Sequence[Fault], end_ns: int
) -> float | None:
    """How long nobody was granted after a heal, to the end of the load; of several faults the
    longest, None where each was recovered from."""
    waited_ns = [
        end_ns - fault.heal_ns[1]
        for one, fault in zip(recovery, faults, strict=False)
        if one.servers_s is None and fault.heal_ns is not None
    ]
    longest_ns = max(waited_ns, default=0)
    return longest_ns / 1e9 if longest_ns > 0 else None


def _block(scene: Scene, step: PlayedStep, history: History) -> Block:
    """The figures of a step, and why they are void."""
    span = (step.begin_ns, step.end_ns)
    found = step_of(
        history,
        *span,
        unknown_after_s=scene.case.pace.client_timeout_s,
        share=step.share,
        offered_per_s=step.offered_per_s,
    )
    health = generator_health(
        scene.folder / "logs",
        (),
        span,
        workers_of(scene.case) + 1,
        patient=True,
        pressure=scene.pressure,
    )
    why = (*filter(None, (not_granted(found.step),)), *health.why)
    return Block(replace(found.step, processors=health.processors, why=why), found.samples)
