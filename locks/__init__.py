"""Locks: one file each, by family, all behind the contract of ``lockbench.locks.base``."""
