"""Locks on Consul."""
