"""Plays workflows and the action with bash, as a runner of GitHub does, in a folder of the test.

Steps of others (checkout, upload…) do nothing; the cache is a folder. An action called
``OWNER/lockbench@COMMIT`` is the one of this repository.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ruamel.yaml import YAML

ROOT: Final = Path(__file__).parents[2]
ACTION: Final = ROOT / "action.yml"
OURS: Final = "OWNER/lockbench@COMMIT"


def read(text: str) -> Any:
    """A YAML document."""
    return YAML(typ="safe", pure=True).load(text)


def steps(text: str) -> list[dict[str, Any]]:
    """Every step of a workflow or an action."""
    document = read(text)
    jobs = [document["runs"]] if "runs" in document else document["jobs"].values()
    return [step for job in jobs for step in job["steps"]]


def shells(text: str) -> dict[str, str]:
    """Name → its shell, of every step that has both."""
    return {step["name"]: step["run"] for step in steps(text) if {"name", "run"} <= step.keys()}


def bash(script: str, folder: Path, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Runs one step."""
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", script],
        cwd=folder, env=dict(env), capture_output=True, text=True, check=False,
    )  # fmt: skip


@dataclass
class Runner:
    """One job. ``context``: what expressions may ask for, by dotted name. ``action``: the folder
    that the action is in."""

    folder: Path
    action: Path
    env: Mapping[str, str]
    context: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    played: list[str] = field(default_factory=list)

    def play(self, steps_: list[dict[str, Any]]) -> bool:
        """Whether all went well; those that ask for ``always()`` are played in any case."""
        good = True
        for step in steps_:
            wanted = str(step.get("if", "")).strip()
            if (not good and "always()" not in wanted) or (wanted and not self._value(wanted)):
                continue
            good = self._play_one(step) and good
        return good

    def _play_one(self, step: Mapping[str, Any]) -> bool:
        if "run" in step:
            return self._run(step)
        given = {name: self._filled(str(value)) for name, value in step.get("with", {}).items()}
        uses = step["uses"].partition("@")[0]
        if step["uses"] == OURS:
            return self._action(given)
        kept = self.folder / "cache" / given.get("key", "")
        if uses == "actions/cache/restore":
            hit = kept.is_file()
            if hit:
                shutil.copy(kept, given["path"])
            self.context[f"steps.{step['id']}.outputs.cache-hit"] = str(hit).lower()
        elif uses == "actions/cache/save":
            kept.parent.mkdir(exist_ok=True)
            shutil.copy(given["path"], kept)
        return True

    def _action(self, given: Mapping[str, str]) -> bool:
        declared = read(ACTION.read_text())["inputs"]
        assert given.keys() <= declared.keys()
        for name, what in declared.items():
            self.context[f"inputs.{name}"] = given.get(name, what.get("default", ""))
        return self.play(steps(ACTION.read_text()))

    def _run(self, step: Mapping[str, Any]) -> bool:
        files = {name: self.folder / f"github-{name}" for name in ("output", "path", "summary")}
        for file in files.values():
            file.touch()
        added = files["path"].read_text().split()
        env = {
            **self.env,
            **{name: self._filled(str(value)) for name, value in step.get("env", {}).items()},
            "PATH": os.pathsep.join([*added, self.env["PATH"]]),
            "GITHUB_ACTION_PATH": str(self.action),
            "GITHUB_OUTPUT": str(files["output"]),
            "GITHUB_PATH": str(files["path"]),
            "GITHUB_STEP_SUMMARY": str(files["summary"]),
            "RUNNER_TEMP": self.context["runner.temp"],
        }
        done = bash(step["run"], self.folder, env)
        self.played.append(step["name"])
        self.said.append(f"{step['name']}: {done.returncode}\n{done.stdout}{done.stderr}")
        if "id" in step:
            for line in files["output"].read_text().splitlines():
                name, _, value = line.partition("=")
                self.context[f"steps.{step['id']}.outputs.{name}"] = value
        files["output"].unlink()
        return done.returncode == 0

    def _filled(self, text: str) -> str:
        """With its expressions in place."""
        return re.sub(
            r"\$\{\{(.+?)\}\}", lambda found: str(self._value(found[1].strip()) or ""), text
        )

    def _value(self, expression: str) -> object:
        """Of an expression: names, texts, ``==``, ``!=``, ``&&``, ``||`` and ``always()``."""
        python = expression.replace("always()", "'true'").replace("&&", " and ")
        python = python.replace("||", " or ")
        python = re.sub(
            r"'[^']*'|[a-z][\w.-]*\.[\w.-]+",
            lambda found: found[0] if found[0][0] == "'" else repr(self.context.get(found[0], "")),
            " ".join(python.split()),
        )
        return eval(python, {"__builtins__": {}})
