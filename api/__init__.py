"""Lockbench in a program and in tests: clusters, faults that prove themselves, and sections that
are judged. What is meant to be used is named in ``lockbench`` itself."""
