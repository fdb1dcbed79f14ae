"""Locks on Redis: one node, Redlock, Sentinel, Cluster, and controls that are known to break."""
