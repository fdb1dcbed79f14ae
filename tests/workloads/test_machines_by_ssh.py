"""Load through ssh: Debian's sshd in a namespace of its own, which OpenSSH's client starts."""

from __future__ import annotations

import os
import pwd
import shlex
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from lockbench.checker.check import check
from lockbench.history.op import F, Type
from lockbench.workloads.machines.file import read
from lockbench.workloads.worker_process import LoadError
from tests.workloads.namespaces import BIN, machines_file, why_not, written
from tests.workloads.test_machines import WORKERS, play, rows_on

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")


def why_no_ssh() -> str | None:
    """Why there can be no such machine here, or None."""
    if why := why_not():
        return why
    if SSHD is None or shutil.which("ssh") is None:
        return "no sshd (Debian's openssh-server)"
    if "sshd" not in {user.pw_name for user in pwd.getpwall()} or not Path("/run/sshd").is_dir():
        return "sshd was never set up here: it has no user, or no /run/sshd"
    return None


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(why_no_ssh() is not None, reason=why_no_ssh() or ""),
]


def by_ssh(folder: Path) -> Path:
    """A file with one machine, to which ssh leads, whose clock is a day ahead."""
    for name in ("host", "user"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(key, check=True)
    (folder / "known").write_text(f"a {(folder / 'host.pub').read_text()}")
    server = folder / "sshd_config"
    server.write_text(
        f"HostKey {folder / 'host'}\nAuthorizedKeysFile {folder / 'user.pub'}\n"
        "PermitRootLogin prohibit-password\nPasswordAuthentication no\nStrictModes no\n"
    )
    machines_file(folder)  # the script that makes a namespace
    options = {
        "ProxyCommand": f"{folder / 'on'} 100000 {SSHD} -i -f {server}",
        "UserKnownHostsFile": str(folder / "known"),
        "IdentityFile": str(folder / "user"),
        "IdentitiesOnly": "yes",
        "BatchMode": "yes",
    }
    said = [word for key, value in options.items() for word in ("-o", f"{key}={value}")]
    there = ["env", f"PATH={BIN}:/usr/bin:/bin", f"TMPDIR={folder}"]
    run = shlex.join(["ssh", "-F", "none", *said, "root@a", *there])
    return written(folder, {"a": (run, 1)})


def test_clients_on_a_machine_that_ssh_leads_to(tmp_path: Path) -> None:
    machines = list(read(by_ssh(tmp_path), WORKERS + 1))
    history = play(tmp_path / "case", machines, "redis-token", 1.0)
    granted = rows_on(history, "a") & (history.f == F.ACQUIRE) & (history.type == Type.OK)
    assert np.any(granted)
    assert history.missing == ()
    assert "invalid" not in {verdict.result for verdict in check(history).verdicts.values()}


def test_a_machine_that_does_not_know_the_key_is_refused(tmp_path: Path) -> None:
    """And nobody waits for a password."""
    file = by_ssh(tmp_path)
    (tmp_path / "user.pub").write_text("")
    with pytest.raises(LoadError, match="Permission denied"):
        play(tmp_path / "case", list(read(file, WORKERS + 1)), "redis-token", 1.0)
