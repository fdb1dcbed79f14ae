"""The command ``lockbench``: its commands, and what each ending is called.

Exit codes: ``lockbench.results.errors.CODES``, and no other, whatever happens. With ``--json``
standard output holds the JSON alone; everything else goes to standard error. What is printed goes
through ``lockbench.report.console``. Each command is a file in ``lockbench.cli.commands``.
"""

from __future__ import annotations

import os
import sys

# ``python -m`` puts the working folder first, which may be a stranger's run folder. Both modules
# above are there before Python looks for any.
if __name__ == "__main__" and not sys.flags.safe_path:
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[0] = os.path.dirname(os.path.dirname(here))  # noqa: PTH120

import traceback
from typing import Annotated, Final

import typer

from lockbench.bench import interruption
from lockbench.cli.commands.adr import adr
from lockbench.cli.commands.agent import agent
from lockbench.cli.commands.alerts import alerts
from lockbench.cli.commands.break_ import break_
from lockbench.cli.commands.bugreport import bugreport
from lockbench.cli.commands.check import check
from lockbench.cli.commands.clean import clean
from lockbench.cli.commands.compare import compare
from lockbench.cli.commands.conform import conform
from lockbench.cli.commands.doctor import doctor
from lockbench.cli.commands.explore import explore
from lockbench.cli.commands.export import export
from lockbench.cli.commands.guard import guard
from lockbench.cli.commands.library import library
from lockbench.cli.commands.list import list_
from lockbench.cli.commands.new_lock import new_lock
from lockbench.cli.commands.regress import regress
from lockbench.cli.commands.report import report
from lockbench.cli.commands.run import run
from lockbench.cli.commands.site import site
from lockbench.cli.commands.suite import suite
from lockbench.cli.commands.sweep import sweep
from lockbench.cli.options import Done
from lockbench.cli.parsing import Command, Commands
from lockbench.report import console as consoles
from lockbench.report.console import OutputGone, out, say_json
from lockbench.results.errors import (
    BAD_INPUT,
    CODES,
    FAILED,
    INTERRUPTED,
    OUTPUT_GONE,
    BadInput,
    Ending,
    Failed,
)

# What the parser answers when a Ctrl-C ended a command.
PARSER_INTERRUPTED: Final = 130
# In the order of ``--help``. What Python keeps for itself ends in an underscore.
COMMANDS: Final = (
    list_,
    run,
    suite,
    sweep,
    explore,
    conform,
    guard,
    new_lock,
    check,
    compare,
    regress,
    report,
    bugreport,
    export,
    adr,
    alerts,
    site,
    break_,
    doctor,
    clean,
    agent,
)


app = typer.Typer(
    name="lockbench",
    cls=Commands,
    help="Find out what distributed locks promise and keep, on real clusters.",
    epilog="Exit codes: " + "; ".join(f"{code} {means}" for code, means in CODES.items()) + ".",
    add_completion=False,
    pretty_exceptions_enable=False,
)


for _command in COMMANDS:
    app.command(_command.__name__.rstrip("_").replace("_", "-"), cls=Command)(_command)
app.add_typer(library, name="library", cls=Commands)


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        out.print(f"lockbench {version('lockbench')}")
        raise Done(0)


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """What stands before any command."""


def main() -> None:
    """The entry point: every ending has its exit code."""
    interruption.arm()
    consoles.take_streams()
    try:
        code = _ended()
        if left := interruption.cleared():
            consoles.warn(left)
            code = code if code == Ending.SAFETY.code else FAILED
        sys.stdout.flush()
    except OutputGone as error:
        code = OUTPUT_GONE
        # A reader who has seen enough is told nothing, as by any other program.
        if not isinstance(error.__cause__, BrokenPipeError):
            consoles.warn(str(error))
    consoles.leave_streams()
    sys.exit(code)


def _ended() -> int:
    """Runs the command; every error is turned into its exit code here, and only here."""
    try:
        answer = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except Done as done:
        return done.code
    except BadInput as error:
        return _fail(str(error), BAD_INPUT)
    except Failed as error:
        return _fail(str(error), FAILED)
    except (KeyboardInterrupt, typer.Abort):
        return _interrupted()
    except typer.TyperException as error:
        # What the parser has to say: an option or a word that does not fit.
        return _fail(f"{error.format_message()} (see lockbench --help)", BAD_INPUT)
    except OutputGone:
        raise
    except Exception as error:  # noqa: BLE001 - our own failure must not look like a lock's
        traceback.print_exc()
        return _fail(f"the bench itself failed: {type(error).__name__}: {error}", FAILED)
    if answer == PARSER_INTERRUPTED:
        return _interrupted()
    return 0 if sys.argv[1:] else BAD_INPUT


def _interrupted() -> int:
    whole = "" if interruption.cleared() else "; everything that was started is gone"
    return _fail(f"interrupted{whole}", INTERRUPTED)


def _fail(sentence: str, code: int) -> int:
    if "--json" in sys.argv:
        say_json({"error": sentence, "exit": code})
    consoles.warn(sentence)
    return code


if __name__ == "__main__":
    main()
