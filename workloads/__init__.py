"""Workloads: the load, driven by Locust in processes of its own.

Locust monkey-patches the standard library when it is imported, so only the modules that run inside
its processes import it (``users``, ``worker``, ``master``, ``locustfile``).
"""
