"""Locks in a key-value bucket of NATS."""
