# /// script
# requires-python = ">=3.11"
# dependencies = []
# ///
"""etcd: who asks for the lock ``k`` waits for the holder of ``k/x``, another lock.

    python docs/track/etcd-lock-prefix.py 127.0.0.1:2379

The server's own lock service, through its JSON gateway: ``k/x`` is held, and ``k``, ``k0`` and
``k/y`` are asked for, which nobody holds; then ``k/x`` is given back, and ``k`` is asked for again.
"""

from __future__ import annotations

import base64
import http.client
import json

from plain import Recorder, end, servers

PATIENCE_S = 3
LEASE_S = 60

(address,), history = servers(__doc__, 1, "a server of etcd")


def ask(path: str, body: dict[str, object]) -> dict[str, object]:
    """The answer; an error of the server is raised, and TimeoutError after ``PATIENCE_S``."""
    connection = http.client.HTTPConnection(*address, timeout=PATIENCE_S)
    try:
        connection.request("POST", f"/v3/{path}", json.dumps(body))
        answer = connection.getresponse()
        said = json.loads(answer.read())
        if answer.status != http.client.OK:
            raise RuntimeError(f"{path}: {said}")
        return dict(said)
    finally:
        connection.close()


def lock(name: str) -> dict[str, object] | None:
    """What ``unlock`` and ``lease/revoke`` want, or None when there was no answer in time."""
    lease = ask("lease/grant", {"TTL": LEASE_S})["ID"]
    encoded = base64.b64encode(name.encode()).decode()
    try:
        return {"key": ask("lock/lock", {"name": encoded, "lease": lease})["key"], "ID": lease}
    except TimeoutError:
        ask("lease/revoke", {"ID": lease})
        return None


def unlock(held: dict[str, object]) -> None:
    """Gives it back."""
    ask("lock/unlock", {"key": held["key"]})
    ask("lease/revoke", {"ID": held["ID"]})


def free(name: str) -> bool:
    """Whether somebody else is granted the lock, and gives it back."""
    held = lock(name)
    if held is not None:
        unlock(held)
    print(f"         {name}: {'granted' if held else f'nothing in {PATIENCE_S} s'}")
    return held is not None


print(f"etcd {ask('maintenance/status', {})['version']}")
NAME = "lockbench-prefix"
recorder = Recorder(NAME)

before = free(NAME)
child = lock(f"{NAME}/x")
assert child is not None, f"{NAME}/x is held by somebody else"
print(f"{NAME}/x is held")
asked = recorder.begin("B", "acquire", "b1")
meanwhile = free(NAME)
if meanwhile:
    asked.ok("granted")
else:
    asked.fail("gave-up", "no answer")
others = [free(f"{NAME}0"), free(f"{NAME}/y")]
unlock(child)
print(f"{NAME}/x was given back")
after = free(NAME)
assert all([before, after, *others]), "another lock waited too, or this one is not free at all"
end(recorder, history, not meanwhile, [])
