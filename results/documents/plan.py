"""plan.json: what was asked for, every draw made."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from lockbench.results.documents.part import Count, Document, Name, Part, Seconds, Seed, Small, Word


class Injection(Part, frozen=True):
    """A fault of a schedule, resolved. Seconds after the start of the contended phase."""

    fault: Name
    begin_s: Seconds
    duration_s: Seconds
    seed: Seed = 0
    parameters: tuple[tuple[str, Word], ...] = ()
    strikes: Literal["lock", "resource"] = "lock"


class Pace(Part, frozen=True):
    """``lockbench.workloads.load.Pace``."""

    lease_ttl_s: Seconds | None = None
    wait_s: Seconds | None = None
    hold_s: Seconds | None = None
    aimed_hold_s: Seconds | None = None
    aimed_wait_s: Seconds | None = None
    think_s: Seconds | None = None
    own_period_s: Seconds | None = None
    client_timeout_s: Seconds | None = None
    retry_pause_s: Seconds | None = None
    touch_resource: bool | None = None


class Step(Part, frozen=True):
    """``lockbench.workloads.load.Step``."""

    warm_s: Seconds
    measured_s: Seconds
    share: Annotated[float, Meta(ge=0, le=100)] = 0.0
    rate: Annotated[float, Meta(ge=0, le=1e6)] = 0.0


class Rates(Part, frozen=True):
    """``lockbench.workloads.load.Rates``."""

    clients: Small = 0
    keys: Small = 0
    hold_s: Seconds = 0.0
    steps: Annotated[tuple[Step, ...], Meta(max_length=1000)] = ()


class Planned(Part, frozen=True):
    """``lockbench.bench.plan.Case``: one lock under one fault, every draw made."""

    side: str | None = None
    lock: Name | None = None
    topology: Name | None = None
    size: Small | None = None
    fault: Name | None = None
    workload: Name | None = None
    network: Name | None = None
    clients: Small | None = None
    keys: Small | None = None
    time_limit_s: Seconds | None = None
    seed: Seed | None = None
    pace: Pace | None = None
    rates: Rates = Rates()
    images: tuple[tuple[Name, Name], ...] = ()
    cluster: Name | None = None  # the file that names a cluster of somebody else
    resource: Name | None = None  # the store that the lock guards, with its guard
    machines: Name | None = None  # the file that names machines beside this one
    hosts: Name | None = None  # the file that names engines, one for each node
    injections: Annotated[tuple[Injection, ...], Meta(max_length=1000)] = ()


class Refused(Part, frozen=True):
    """A case that was asked for beside others and could not be made."""

    lock: Name
    fault: Name
    why: str
    topology: Name | None = None


class Plan(Document, frozen=True, kw_only=True):
    """``command`` is how a suite was asked for; a try names the run that is shrunk. The second half
    is of a change (``lockbench.evidence.regress``)."""

    name: str | None = None
    command: str | None = None
    cases: tuple[Planned, ...] = ()
    refused: tuple[Refused, ...] = ()
    try_of: str | None = None
    shrunk_from: str | None = None
    base: str | None = None
    new: str | None = None
    pairs: Count | None = None
    seed: Seed | None = None
    repeat: str | None = None

    def images_of(self, cases: int) -> list[tuple[tuple[str, str], ...]]:
        """Of each of the ``cases`` of a run the (name, reference) of the images it replaced; none
        where it is not known which of those that were planned ran."""
        if len(self.cases) != cases:
            return [()] * cases
        return [planned.images for planned in self.cases]
