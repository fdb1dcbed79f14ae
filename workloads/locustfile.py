"""The same users for plain Locust: ``LOCKBENCH_LOAD=… locust -f workloads/locustfile.py``.

``lockbench break --topology T --workload W`` starts a cluster and prints the whole line. The users
that contend are called after their workload (``PaymentUser``) and tagged with its name; a
``LoadTestShape`` joins in a locustfile of its own that begins with ``from
lockbench.workloads.locustfile import *``. What each of them records is a history
(``docs/workloads.md``).
"""

import os
from pathlib import Path

from locust import tag

from lockbench.declarations.lazy import load_all
from lockbench.locks.registry import find
from lockbench.workloads.load import ENVIRONMENT, Load
from lockbench.workloads.users import ContendedUser, LockUser, RivalUser, SoloUser, VictimUser

__all__ = ["RivalUser", "SoloUser", "VictimUser"]

_file = os.environ.get(ENVIRONMENT)
_load = Load.read(Path(_file)) if _file else None
_workload = _load.workload.partition(":")[0] if _load else "mutex"
if _load:
    # Everything is imported now, and not in the run's time (``-t``).
    find(_load.lock)
    load_all()
_name = "".join(word.title() for word in _workload.split("-")) + "User"
tag(_workload)(LockUser.live)
globals()[_name] = type(_name, (ContendedUser,), {"__module__": __name__})
__all__ += [_name]  # noqa: PLE0604 - a name, made above
