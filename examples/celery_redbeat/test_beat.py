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
        a = start("beat.py", "A", redis, pipe)
        until(lambda: section.stays)
        start("beat.py", "B", redis, pipe).says("Acquiring lock")
        sent = len(section.stays)
        until(lambda: len(section.stays) > sent)
        ticks = a.log.count("Extending lock")
        with faults.partition(lockbench_redis, how="stall"):
            assert section.stays[-1].left_ns is None  # A sends, and asks Redis for nothing
            a.says("Extending lock", times=ticks + 1)  # and hears nothing
            time.sleep(7)  # longer than redbeat_lock_timeout
        until(lambda: sum(stay.who == "B" for stay in section.stays) >= 2)


@versions(broken="celery-redbeat-2.0.0", fixed="celery-redbeat-2.1.0")
def test_a_beat_that_cannot_ask_for_the_lock_does_not_start(lockbench_redis, start):
    """https://github.com/sibson/redbeat/issues/208"""
    redis = f"redis://{lockbench_redis.hosts}/0"
    with exclusive(lockbench_redis) as section:
        pipe = section.pipe()
        a = start("beat.py", "A", redis, pipe)
        until(lambda: section.stays)
        b = start("beat.py", "B", redis, pipe, supervised=True)
        b.says("Acquiring lock")
        sent = len(section.stays)
        until(lambda: len(section.stays) > sent)
        with faults.partition(lockbench_redis):
            time.sleep(1)  # B asks twice a second, and the heal closes its connection
            assert section.stays[-1].left_ns is None  # A sends, and asks Redis for nothing
        b.says("acquire_distributed_beat_lock")  # its traceback, and Celery goes on
        until(lambda: len(section.stays) >= sent + 3)
        a.stop()
        until(lambda: section.stays[-1].who == "B")
