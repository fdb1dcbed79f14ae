"""The faults, one file each."""
