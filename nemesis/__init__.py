"""The nemesis: faults, one file each, and the conductor that injects, proves and heals them."""
