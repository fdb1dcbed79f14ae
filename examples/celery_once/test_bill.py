"""Two clients queue the same task at once: is it run once?"""

import pytest

from examples.software import until, versions
from lockbench import exclusive, faults

pytestmark = [pytest.mark.docker, pytest.mark.long]


@versions(broken="celery-once-1.3.0", fixed="celery-once-2.0.0")
def test_a_task_is_queued_once(lockbench_redis, start):
    """https://github.com/cameronmaske/celery-once/issues/7"""
    redis = f"redis://{lockbench_redis.hosts}/0"
    with exclusive(lockbench_redis) as section:
        pipe = section.pipe()
        start("bill.py", "worker", redis, pipe).says("ready")
        start("bill.py", 1, redis, pipe).says("queued")
        until(lambda: [stay for stay in section.stays if stay.left_ns])
        with faults.latency(lockbench_redis, ms=300):
            clients = start("bill.py", 2, redis, pipe)
            until(lambda: clients.log.count("queued") + clients.log.count("refused") == 2)
        done = 1 + clients.log.count("queued")
        until(lambda: sum(stay.left_ns is not None for stay in section.stays) == done)
