"""Stores that check for themselves whether a write may still be applied, one file each."""
