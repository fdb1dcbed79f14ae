"""The same users for plain Locust: ``LOCKBENCH_LOAD=… locust -f workloads/locustfile.py``.

``lockbench break --topology T --workload W`` starts a cluster and prints the whole line. The users
that contend are called after their workload (``PaymentUser``) and tagged with its name; a
``LoadTestShape`` joins in a locustfile of its own that begins with ``from workloads.locustfile
import *``. What each of them records is a history (``docs/workloads.md``).
"""

import os
from pathlib import Path

from locust import tag

from workloads.load import ENVIRONMENT, Load
from workloads.users import ContendedUser, LockUser, RivalUser, SoloUser, VictimUser

__all__ = ["RivalUser", "SoloUser", "VictimUser"]

_load = os.environ.get(ENVIRONMENT)
_workload = Load.read(Path(_load)).workload.partition(":")[0] if _load else "mutex"
_name = "".join(word.title() for word in _workload.split("-")) + "User"
tag(_workload)(LockUser.live)
globals()[_name] = type(_name, (ContendedUser,), {"__module__": __name__})
__all__ += [_name]  # noqa: PLE0604 - a name, made above
