"""What keeps a lock's grants alive while their holders work, as its declaration says."""

from __future__ import annotations

from typing import Final

from lockbench.locks.base import Extendable, System
from lockbench.locks.shared.library import library_of

# The duty (``lockbench.bench.duties``) that a lock does not owe if its leases run out whatever is
# done.
LIVES_ON: Final = "a_hold_lives_on_while_it_is_kept_alive"


def extendable(system: System) -> bool:
    """Whether a lock's promise can be lengthened by its holder."""
    library = library_of(system)
    if library is not None:
        return library.extends
    return isinstance(system.connect, type) and issubclass(system.connect, Extendable)


def lives_on(system: System) -> bool:
    """Whether a grant lasts for as long as its client lives, without its holder's doing."""
    return not extendable(system) and LIVES_ON not in system.not_owed
