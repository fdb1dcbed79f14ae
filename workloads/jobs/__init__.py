"""The workloads, one file each (see ``workloads.base``)."""
