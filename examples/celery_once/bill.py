"""A worker and its clients, whose task celery-once queues at most once."""

import os
import sys
import threading
import time

from celery import Celery
from celery_once import AlreadyQueued, QueueOnce

app = Celery("bill")


@app.task(base=QueueOnce, name="bill", bind=True)
def bill(task, pipe):
    os.write(pipe, f"enter bill {task.request.id}\n".encode())
    time.sleep(2)
    os.write(pipe, f"leave bill {task.request.id}\n".encode())


def ask(pipe):
    try:
        bill.delay(pipe)
        print("queued")
    except AlreadyQueued:
        print("refused")


def main(what, redis, pipe):
    app.conf.broker_url = redis
    app.conf.ONCE = {"backend": "celery_once.backends.Redis", "settings": {"url": redis}}
    if what == "worker":
        app.worker_main(["worker", "--pool", "threads", "--concurrency", "2", "--loglevel", "INFO"])
    for _ in range(int(what)):
        threading.Thread(target=ask, args=[int(pipe)]).start()


if __name__ == "__main__":
    main(*sys.argv[1:])
