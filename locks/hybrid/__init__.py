"""Locks that use two systems at once."""
