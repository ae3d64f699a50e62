"""The three read-only tools and what a further one has to be."""

from codegrep.sandbox.tools.glob import Glob
from codegrep.sandbox.tools.grep import Grep
from codegrep.sandbox.tools.read import Read
from codegrep.sandbox.tools.search import SearchPrograms, find_ripgrep
from codegrep.sandbox.tools.tool import ArgumentError, Outcome, Tool

__all__ = ["ArgumentError", "Glob", "Grep", "Outcome", "Read", "SearchPrograms", "Tool", "find_ripgrep"]
