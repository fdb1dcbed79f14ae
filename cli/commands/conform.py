"""``lockbench conform``."""

from __future__ import annotations

from typing import Annotated

import typer

from lockbench.cli.options import Done, Json, Topology
from lockbench.report.console import err, out, say_json


def conform(
    lock: Annotated[str, typer.Argument(help="A lock by name, or by its file or folder.")],
    topology: Topology = None,
    as_json: Json = False,
) -> None:
    """Test on a real cluster, without faults, that a lock keeps what every lock owes."""
    from lockbench.bench import plan
    from lockbench.bench.conform import Outcome, conform, ending
    from lockbench.results.errors import Ending

    console = err if as_json else out

    def say(line: str) -> None:
        console.print(line, soft_wrap=True)

    def told(outcome: Outcome) -> None:
        why = f": {outcome.why}" if outcome.why else ""
        say(f"{outcome.word:<9}  {outcome.duty.sentence}{why}")

    found = {}
    for name in plan.each_lock(lock):
        system = plan.find_system(name)
        console.print(f"{system.name} on {topology or system.topologies[0]}")
        outcomes = found[name] = conform(name, topology=topology, told=told, say=say)
        counts = {word: sum(o.word == word for o in outcomes) for word in COUNTED}
        said = ", ".join(f"{count} {word}" for word, count in counts.items() if count)
        console.print(f"{system.name}: {said}\n")
    last = Ending.worst([ending(outcomes) for outcomes in found.values()])
    if as_json:
        locks = [
            {
                "lock": name,
                "ending": ending(outcomes).word,
                "duties": [
                    {"duty": o.duty.name, "outcome": o.word, "why": o.why, "took_s": o.took_s}
                    for o in outcomes
                ],
            }
            for name, outcomes in found.items()
        ]
        say_json({"locks": locks, "ending": last.word})
    raise Done(last.code)


COUNTED = ("kept", "broken", "not owed", "not tried")
