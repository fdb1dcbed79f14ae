"""The same users for plain Locust: ``LOCKBENCH_LOAD=… locust -f workloads/locustfile.py``.

``lockbench break --topology T`` starts a cluster and prints the whole line.
"""

from workloads.users import ContendedUser, RivalUser, SoloUser, VictimUser

__all__ = ["ContendedUser", "RivalUser", "SoloUser", "VictimUser"]
