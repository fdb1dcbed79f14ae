"""One scheduler looks after a queue: is it still one after a rolling restart?"""

import pytest

from examples.software import until, versions
from lockbench import exclusive

pytestmark = pytest.mark.docker


@versions(broken="rq-1.14.1", fixed="rq-1.15.0")
def test_a_scheduler_releases_its_own_locks(lockbench_redis, start):
    """https://github.com/rq/rq/pull/1914"""
    redis = f"redis://{lockbench_redis.hosts}/0"
    with exclusive() as section:
        pipe = section.pipe()
        a = start("scheduler.py", "A", redis, "bills", pipe)
        until(lambda: section.stays)
        b = start("scheduler.py", "B", redis, "bills", "mails", pipe)
        b.says("has asked")
        b.stop()
        b.says("releasing locks")
        start("scheduler.py", "C", redis, "bills", pipe).says("has asked")
        looked = len(section.stays)
        until(lambda: len(section.stays) >= looked + 4)
        a.stop()
        start("scheduler.py", "D", redis, "bills", pipe).says("has asked")
        until(lambda: any(stay.who in "CD" and stay.left_ns for stay in section.stays))
