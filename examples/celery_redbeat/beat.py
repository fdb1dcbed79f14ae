"""A beat of celery-redbeat that reports each task that it sends. A file `hold` makes that last."""

import os
import sys
import time
import types
from pathlib import Path

from celery import Celery
from celery.apps.beat import Beat
from celery.signals import before_task_publish

# redbeat 1.0.0 wants it, and Celery 5 has it no more.
sys.modules["celery.five"] = types.SimpleNamespace(values=dict.values)


def main(name, redis, timeout, hold, pipe):
    app = Celery(broker="memory://")
    app.conf.redbeat_redis_url = redis
    app.conf.redbeat_lock_timeout = int(timeout)
    app.conf.beat_max_loop_interval = 0.5
    app.conf.beat_schedule = {"bills": {"task": "bill", "schedule": 0.1}}

    @before_task_publish.connect(weak=False)
    def send(**_):
        os.write(int(pipe), f"enter schedule {name} pid={os.getpid()}\n".encode())
        try:
            time.sleep(0.3)  # longer than until the next one is due
            while Path(hold).exists():
                print("is held")
                time.sleep(0.05)
        finally:
            os.write(int(pipe), f"leave schedule {name}\n".encode())

    Beat(app=app, scheduler="redbeat.RedBeatScheduler", loglevel="DEBUG").run()


if __name__ == "__main__":
    main(*sys.argv[1:])
