"""The workloads, one file each (see ``lockbench.workloads.base``)."""
