"""Issues: one record for every source, and the sources themselves.

Way of the data: a source (`swe_bench`, `git_history`, `demo`) -> `load_issues` -> `make_split` -> `check_leaks`.
"""

from codegrep.issues.issue import Issue, LineRange

__all__ = ["Issue", "LineRange"]
