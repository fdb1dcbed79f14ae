"""A command line with the defects that the judge has to find, and the errors that have a code."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import typer

from lockbench.cli import main as cli
from lockbench.report import console
from lockbench.results.errors import BadInput

EATEN_BYTES: Final = 300 << 20
STRANGE: Final = "\x1b]0;owned\x07 [red]x[/red] :smile: \u202e \x9b31m \ud800"


def _raise(error: BaseException) -> None:
    raise error


def _eat() -> None:
    eaten = bytearray(EATEN_BYTES)
    for place in range(0, len(eaten), 4096):
        eaten[place] = 1


def _spin() -> None:
    while True:
        pass


def _print_strange() -> None:
    os.write(1, b"\x1b[31m")


def _as_asked(words: list[str], then: Callable[[], Any]) -> None:
    """As if the user had written these words, too."""
    sys.argv += words
    then()


PLANTED: Final[Mapping[str, Callable[[], Any]]] = {
    "nothing": lambda: None,
    "traceback": lambda: _raise(KeyError("x")),
    "hang": lambda: os.open("pipe", os.O_RDONLY),
    "spin": _spin,
    "eat": _eat,
    "code": lambda: os._exit(77),
    "raw": _print_strange,
    "start": lambda: subprocess.run(["true"], check=True),
    "connect": lambda: __import__("socket").create_connection(("127.0.0.1", 1)),
    "kill": lambda: os.kill(os.getppid(), 0),
    "follow": lambda: Path("folder/link").read_text(),
    "write-outside": lambda: Path("link").write_text("x"),
    "write-input": lambda: Path("input").write_text("x"),
    "write-asked": lambda: Path("../out/asked").write_text("x"),
    "execute": lambda: runpy.run_path("evil.py"),
    "execute-asked": lambda: _as_asked(["--lock", "evil.py:EVIL"], PLANTED["execute"]),
    "execute-asked-file": lambda: _as_asked(["--lock", "evil.py"], PLANTED["execute"]),
    "follow-asked": lambda: _as_asked(["named"], Path("named/canary").read_bytes),
    "bad-input": lambda: _raise(BadInput("it is bad")),
    "interrupt": lambda: _raise(KeyboardInterrupt()),
    "abort": lambda: _raise(typer.Abort()),
    "other-pipe": lambda: _raise(BrokenPipeError(32, "Broken pipe")),
    "slow": lambda: time.sleep(0.5),
    "strange": lambda: console.out.print(STRANGE),
    "strange-text": lambda: console.say(STRANGE),
    "strange-error": lambda: _raise(BadInput(STRANGE)),
    "strange-json": lambda: console.say_json({"x": STRANGE}),
}


def main() -> None:
    """``lockbench NAME`` does what is planted under that name."""
    cli.app.command(sys.argv[1])(PLANTED[sys.argv[1]])
    cli.main()
