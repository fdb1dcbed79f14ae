"""The commands of ``lockbench``, one file each: their options, and what they call."""
