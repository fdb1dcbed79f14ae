"""One beat sends the tasks and others wait for the lock: is it ever two that send?"""

import time

import pytest

from examples.software import until, versions
from lockbench import exclusive, faults

pytestmark = [pytest.mark.docker, pytest.mark.long]


@versions(broken="celery-redbeat-1.0.0", fixed="celery-redbeat-2.0.0")
def test_a_beat_that_lost_the_lock_stops(lockbench_redis, start):
    """https://github.com/sibson/redbeat/issues/127"""
    redis = f"redis://{lockbench_redis.hosts}/0"
    with exclusive(lockbench_redis) as section:
        pipe = section.pipe()
        start("beat.py", "A", redis, pipe)
        until(lambda: section.stays)
        start("beat.py", "B", redis, pipe).says("Acquiring lock")
        sent = len(section.stays) // 2 * 2 + 2
        until(lambda: len(section.stays) == sent and section.stays[-1].left_ns)
        with faults.partition(lockbench_redis, how="stall"):  # A waits for its next tick
            time.sleep(3)  # longer than the lock's timeout
        until(lambda: sum(stay.who == "B" for stay in section.stays) >= 6)


@versions(broken="celery-redbeat-2.0.0", fixed="celery-redbeat-2.1.0")
def test_a_beat_that_cannot_ask_for_the_lock_does_not_start(lockbench_redis, start):
    """https://github.com/sibson/redbeat/issues/208"""
    redis = f"redis://{lockbench_redis.hosts}/0"
    with exclusive(lockbench_redis) as section:
        pipe = section.pipe()
        a = start("beat.py", "A", redis, pipe, supervised=True)
        until(lambda: section.stays)
        start("beat.py", "B", redis, pipe, supervised=True).says("Acquiring lock")
        with faults.partition(lockbench_redis):  # its heal closes what hung
            time.sleep(1)
        a.says("Acquiring lock", times=2)
        sent = len(section.stays)
        until(lambda: len(section.stays) >= sent + 6)
        a.stop()
        until(lambda: section.stays[-1].who == "B")
