"""A scheduler of RQ that reports when it looks for jobs of the queue "bills"."""

import os
import sys
import time

from redis import Redis
from rq.scheduler import RQScheduler


class Scheduler(RQScheduler):
    def acquire_locks(self, *args, **kwargs):
        super().acquire_locks(*args, **kwargs)
        print("has asked")

    def enqueue_scheduled_jobs(self):
        if "bills" in self.acquired_locks:
            os.write(int(pipe), f"enter bills {name}\n".encode())
            time.sleep(1.2)
            super().enqueue_scheduled_jobs()
            os.write(int(pipe), f"leave bills {name}\n".encode())


if __name__ == "__main__":
    name, redis, *queues, pipe = sys.argv[1:]
    Scheduler(queues, connection=Redis.from_url(redis)).work()
