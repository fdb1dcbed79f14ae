"""The words for how a case ended, as documents and tables have them.

What happened to the run itself (``failed``, ``disturbed``, ``could not run``) is in
``lockbench.results.cases``.
"""

from __future__ import annotations

from typing import Final

AS_EXPECTED: Final = "as expected"
# Nothing broke that was not expected to, under a fault of which nothing is declared.
HELD_UNDECLARED: Final = "held, undeclared"
WORSE: Final = "worse than expected"
# A violation under a fault of which nothing is declared.
BROKE_UNDECLARED: Final = "broke, undeclared"
# What no lease prevents, of a lock of one's own that declares nothing.
NOTHING_DECLARED: Final = "no expectation declared"
# A case without a fault whose load did not take place.
NOT_AS_ASKED: Final = "not as asked"
# A break that had to show, and did not.
DID_NOT_SHOW: Final = "did not show"
# The service's own record shows that what broke was not so: the bench is wrong.
CONTRADICTED: Final = "contradicted"

GREEN: Final = frozenset({AS_EXPECTED, HELD_UNDECLARED})
VIOLATED: Final = frozenset({WORSE, BROKE_UNDECLARED})
