"""Clusters of somebody else: named in a file, reached through near links, broken by near links and
by the commands that the file gives. Docs: docs/your-cluster.md."""
