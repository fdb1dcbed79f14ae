"""Locks on PostgreSQL."""
