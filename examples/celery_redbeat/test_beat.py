"""One beat sends the tasks and others wait for the lock: is it ever two that send?"""

import time

import pytest

from examples.software import until, versions
from lockbench import exclusive, faults

pytestmark = [pytest.mark.docker, pytest.mark.long]


@versions(broken="celery-redbeat-1.0.0", fixed="celery-redbeat-2.0.0")
def test_a_beat_that_lost_the_lock_stops(lockbench_redis, start, tmp_path):
    """https://github.com/sibson/redbeat/issues/127"""
    with exclusive(lockbench_redis) as section:
        hold = tmp_path / "hold"
        words = f"redis://{lockbench_redis.hosts}/0", 6, hold, section.pipe()
        a = start("beat.py", "A", *words)
        until(lambda: section.stays)
        start("beat.py", "B", *words).says("Acquiring lock")
        hold.touch()
        a.says("is held")  # it sends, and asks Redis for nothing
        ticks = a.log.count("Extending lock")
        with faults.partition(lockbench_redis, how="stall"):
            hold.unlink()
            a.says("Extending lock", times=ticks + 1)  # and waits for the answer
            time.sleep(7)  # longer than the lock lasts
        until(lambda: sum(stay.who == "B" for stay in section.stays) >= 5)


@versions(broken="celery-redbeat-2.0.0", fixed="celery-redbeat-2.1.0")
def test_a_beat_that_cannot_ask_for_the_lock_does_not_start(lockbench_redis, start, tmp_path):
    """https://github.com/sibson/redbeat/issues/208"""
    with exclusive(lockbench_redis) as section:
        hold = tmp_path / "hold"
        words = f"redis://{lockbench_redis.hosts}/0", 60, hold, section.pipe()
        a = start("beat.py", "A", *words)
        until(lambda: section.stays)
        b = start("beat.py", "B", *words, supervised=True)
        b.says("Acquiring lock")
        hold.touch()
        a.says("is held")  # it sends, and asks Redis for nothing
        with faults.partition(lockbench_redis):
            time.sleep(1)  # B asks twice a second, and the heal closes its connection
        b.says("acquire_distributed_beat_lock")  # its traceback, and Celery goes on
        until(lambda: section.stays[-1].who == "B" or b.log.count("Acquiring lock") == 2)
        hold.unlink()
        a.stop()
        until(lambda: section.stays[-1].who == "B")
