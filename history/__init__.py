"""Histories: what every client did and every fault touched, on one clock.

The lowest layer. It imports nothing of Lockbench, no Docker, no lock library.
"""
