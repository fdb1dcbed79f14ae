"""``lockbench report`` and ``lockbench export``: evidence from stored runs, nothing is started."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lockbench.declarations import program
from lockbench.results.errors import BadInput
from lockbench.results.store import NotARun, open_run

REPORT_S_MAX = 600


def report(folder: Path) -> str:
    """Writes the report of a run; returns a sentence that says where. Raises BadInput."""
    from lockbench.report.charts import CAN_DRAW, NOT_DRAWN
    from lockbench.report.write import write

    try:
        written = write(open_run(folder))
    except NotARun as error:
        raise BadInput(str(error)) from error
    except OSError as error:
        raise BadInput(f"the report of {folder} cannot be written: {error}") from error
    missing = "" if CAN_DRAW else f"; {NOT_DRAWN}"
    size_mb = written.html.stat().st_size / 1e6
    return f"report: {written.html} ({size_mb:.1f} MB) and report.md{missing}"


def export(folder: Path, form: str, out: Path) -> str:
    """Exports a run; returns a sentence that says what was written. Raises BadInput."""
    from lockbench.report.exports import CannotExport
    from lockbench.report.exports import export as write

    try:
        written = write(open_run(folder), form, out)
    except (NotARun, CannotExport) as error:
        raise BadInput(str(error)) from error
    except OSError as error:
        raise BadInput(f"{out} cannot be written: {error}") from error
    return f"{len(written)} files in {out}"


def report_after(folder: Path) -> str:
    """The report at the end of a run, as a sentence. Whatever happens to it, a crash of the library
    that draws included, changes nothing about the run: it is made by a process of its own."""
    command = program.command("lockbench.cli.main", "report", str(folder))
    again = f"`lockbench report {folder}` tries again"
    try:
        done = subprocess.run(
            command,
            env=program.environment(),
            capture_output=True,
            text=True,
            timeout=REPORT_S_MAX,
            check=False,
        )
    except KeyboardInterrupt:
        return f"the report was interrupted; {again}"
    except (OSError, subprocess.SubprocessError) as error:
        return f"the report failed ({error}); {again}"
    said = (done.stdout if done.returncode == 0 else done.stderr).strip().splitlines()
    if done.returncode == 0 and said:
        return said[-1]
    return f"the report failed ({said[-1] if said else f'exit code {done.returncode}'}); {again}"
