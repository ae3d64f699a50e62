"""For all tests."""

from __future__ import annotations

from hypothesis import settings

# An example may take long on a busy machine; tests are no clocks.
settings.register_profile("codegrep", deadline=None)
settings.load_profile("codegrep")
