"""Ways to do without a lock, one file each (see ``lockbench.locks.without.base``)."""
