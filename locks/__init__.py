"""Locks: one file each, all behind the contract of ``locks.base``."""
