"""Importing this makes blocking calls gevent's, as Locust does in the workers; before all else."""

from gevent import monkey

monkey.patch_all()
