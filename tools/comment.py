"""Keep one comment of ours on a pull request (GitHub) or a merge request (GitLab) up to date.

``python3 -I tools/comment.py FILE``, in a job of theirs. The comment is the Markdown FILE, or a
link to the job's log where there is none. It is found again by its first line, which names the job,
and then replaced. LOCKBENCH_TOKEN is a token that may write comments; everything else is in the
variables that both set for every job. Standard library only, so that any Python runs it.
"""

from __future__ import annotations

import json
import os
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# GitHub takes 65,536 characters.
CHARS_MAX = 60_000
PAGE = 100
LIMIT_S = 30.0
FAILED, BAD_INPUT = 255, 254


@dataclass(frozen=True)
class Forge:
    """Where the comments of this job's request are. ``one`` is the address of a comment without its
    number; ``update`` the method that replaces it."""

    comments: str
    one: str
    update: str
    headers: Mapping[str, str]
    job: str
    log: str


def forge(env: Mapping[str, str]) -> Forge:
    """Read the job's variables. Raises KeyError for one that is missing."""
    token = env["LOCKBENCH_TOKEN"]
    if "GITHUB_REPOSITORY" in env:
        event = json.loads(Path(env["GITHUB_EVENT_PATH"]).read_text(encoding="utf-8"))
        repository = f"{env['GITHUB_API_URL']}/repos/{env['GITHUB_REPOSITORY']}"
        return Forge(
            comments=f"{repository}/issues/{event['pull_request']['number']}/comments",
            one=f"{repository}/issues/comments",
            update="PATCH",
            headers={"Authorization": f"Bearer {token}"},
            job=f"{env['GITHUB_WORKFLOW']}, {env['GITHUB_JOB']}",
            log=f"{env['GITHUB_SERVER_URL']}/{env['GITHUB_REPOSITORY']}"
            f"/actions/runs/{env['GITHUB_RUN_ID']}",
        )
    request = f"projects/{env['CI_PROJECT_ID']}/merge_requests/{env['CI_MERGE_REQUEST_IID']}"
    notes = f"{env['CI_API_V4_URL']}/{request}/notes"
    headers = {"PRIVATE-TOKEN": token}
    return Forge(notes, notes, "PUT", headers, env["CI_JOB_NAME"], env["CI_JOB_URL"])


def text_of(file: Path, mark: str, log: str) -> str:
    """Return the comment. Where it is too long, its end is left out and said to be in the log."""
    if not file.is_file():
        return f"{mark}\nCould not compare: [the log says why]({log}).\n"
    text = f"{mark}\n{file.read_text(encoding='utf-8')}"
    if len(text) <= CHARS_MAX:
        return text
    return f"{text[:CHARS_MAX]}\n\n… [the job]({log}) has the rest.\n"


def main(file: Path, env: Mapping[str, str]) -> None:
    """Write the comment."""
    here = forge(env)
    mark = f"<!-- lockbench: {here.job} -->"
    text = text_of(file, mark, here.log)
    mine = next((c["id"] for c in comments(here) if c["body"].startswith(mark)), None)
    if mine is None:
        ask(here, "POST", here.comments, text)
    else:
        ask(here, here.update, f"{here.one}/{mine}", text)


def comments(here: Forge) -> Iterator[Any]:
    """List what is there, page by page."""
    number = 1
    while True:
        page = ask(here, "GET", f"{here.comments}?per_page={PAGE}&page={number}")
        yield from page
        if len(page) < PAGE:
            return
        number += 1


def ask(here: Forge, method: str, address: str, text: str | None = None) -> Any:
    """Make one call. Raises OSError."""
    request = urllib.request.Request(  # noqa: S310 - the job's own forge
        address,
        method=method,
        data=None if text is None else json.dumps({"body": text}).encode(),
        headers={**here.headers, "Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:  # noqa: S310 - the same
        return json.load(answer)


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), os.environ)
    except (IndexError, KeyError) as error:
        print(f"usage: comment.py FILE, in a job of a pull request; missing: {error}")
        sys.exit(BAD_INPUT)
    except OSError as error:
        print(f"the comment was not written: {error}")
        sys.exit(FAILED)
