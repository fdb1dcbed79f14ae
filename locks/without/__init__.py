"""Ways to do without a lock, one file each (see ``locks.without.base``)."""
