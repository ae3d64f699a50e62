"""Issues: one record for every source, and the sources themselves."""

from codegrep.issues.issue import Issue, LineRange

__all__ = ["Issue", "LineRange"]
