"""my-lock (where it comes from), from its package.

``my-lock`` is the library at its defaults; say here what they are. ``my-lock-safe`` sets retries
and timeouts so that one call is one attempt, as far as the library lets its user.

Does not guarantee: say what the library's own documentation does not promise.
"""

from __future__ import annotations

from lockbench.locks.base import System
from lockbench.locks.shared.library import Library, as_safe

_PLAIN = Library(__file__)

_SYSTEM = System(
    name="my-lock",
    topologies=("redis",),  # the first is the one that is meant; lockbench list has the others
    family="redis",  # of the server
    fence=None,  # or where its fence comes from, in words
    waits_by="not known yet",
    source="https://pypi.org/project/my-lock/",
    connect=_PLAIN.connect,
    prepare=_PLAIN.prepare,
    outcomes={  # what the library says to its user, and what the user must take it for
        "acquire() returned True": "Granted",
        "acquire() returned False, one try": "Denied: held",
        "acquire() returned False, the wait is over": "Denied: gave-up",
        "acquire() raised anything": "Unknown",
        "release() returned": "Released",
        "release() raised anything": "Unknown",
    },
    raises=None,  # the errors that its documentation names: class → the page that does
    limited=False,  # True if a grant at the library's defaults ends by itself
)

SYSTEMS = (
    _SYSTEM,
    as_safe(_SYSTEM, limited=True),  # with extends=True if the adapter has an ``extend``
)
