"""Arguments that were thought of: attacks on the root, on the clock, on the command line and on the reader."""

from __future__ import annotations

PATTERNS = [
    # heavy for engines that backtrack, or large when compiled
    "(a+)+$", "(a|a)*b", "(.*a){20}$", "([a-zA-Z]+)*c", "(a|aa)+z", "(x+x+)+y", "^(([a-z])+.)+[A-Z]([a-z])+$",
    ".*.*.*=.*",
    r"(\w{1000}){1000}", r"\w{500}\d{500}", ".*", ".+", "", "^", "$", "^$", r"\b", "(?s).*", r"(?:.*\n)*",
    "[^x]*[^y]*[^z]*!",
    r"(?i)(ſ|K|s|k)+", r"\p{L}+\p{N}*", "[\\w\\W]{1,200}secret", "(((((((((((a*)*)*)*)*)*)*)*)*)*)*", "a{1,1000}" * 3,
    # options and shell
    "--pre=cat", "--pre", "-f/etc/passwd", "-e", "--", "-", "--hostname-bin=/bin/sh", "--follow", "-z", "--files",
    "-uuu",
    "$(touch /tmp/pwned)", "`id`", "; id", "| id", "&& id", "> /tmp/pwned", "%s%n", "{{7*7}}", "$HOME", "*", "?", "~",
    # broken, or of another dialect
    "(", ")", "[", "]", "{", "}", "a{", "a{2", "a{3,2}", "*a", "+", "?", "\\", "(?", "(?P<", "(?<x>", "[z-a]",
    "[[:foo:]]",
    "(?=x)", "(?!x)", "(?<=x)y", r"(a)\1", r"\Z", r"\z", r"\G", r"\K", r"\x{110000}", r"\u{d800}", r"\p{Nope}", "(?z)a",
    # characters
    "\0", "a\0b", "\n", "a\nb", "\r", "\t", "\x1b[31m", "\u202e", "\ufeff", "\u2028", "é", "e\u0301", "ﬁ", "😀",
    "\ud800",
    "\udcff", "x" * 1000, "x" * 1001, "x" * 100_000, "run", "def run", "class|def", "import os", "SECRET", "gitdir",
    "needle",
]  # fmt: skip

PATHS = [
    ".", "", "/", "//", "./", "src", "src/app.py", "/repo/src/app.py", "/workspace/o__n__1.0/src/app.py", "src//app.py",
    "src/./app.py", "../outside", "..", "src/../..", "src/../src/app.py", "/etc/passwd", "/proc/self/environ",
    "/dev/zero",
    "/dev/stdin", "/proc/self/fd/0", "~", "~root", ".git", ".git/config", ".GIT", "src/.git", ".g\u200cit", "git~1",
    ".git ",
    ".git.", "link", "link/secret.py", "file.py", "chain/secret.py", "loop", "fifo", "big.py", "wide.py", "binary",
    "latin.py",
    "new\nline.py", "nowhere", "src/app.py/x", "src/*.py", "-e", "--pre=x", "a\0b", "\ud800", "x" * 999, "x/" * 499,
    "x" * 5000,
    "．．/outside", "%2e%2e/outside", "..\\outside", "src\\app.py", "\u202esrc", "src/app.py\0.txt", "docs",
]  # fmt: skip

GLOBS = [
    "*", "**", "**/*", "*.py", "src/*", "src/**", "**/*.py", "{a,b}", "{", "}", "[", "[a", "[!a]*", "[]a]", "!x",
    "!**", "../*",
    "/*", "/etc/*", "/../*", "~/*", ".*", ".git", ".git/*", "**/.git", "**/.git/**", "link/*", "link/**",
    "*/secret.py", "\\", "\\*",
    "*" * 200, "**/" * 100 + "x", "{a," * 50, "{a,b}" * 12, "{" + "x," * 400 + "y}", "?" * 300, "a\0", "\ud800", "",
    " ", "--files",
    "-e", "*.{py,md}", "*.{py", "[[:alpha:]]*", "x" * 1001, "new*", "**a**b**c**", "*.PY", "fifo", "\n",
]  # fmt: skip

ODD = [
    None,
    True,
    False,
    0,
    -1,
    1,
    2**31,
    10**30,
    1.5,
    float("nan"),
    float("inf"),
    [],
    ["x"],
    {},
    {"a": 1},
    "true",
    "12",
    "",
]
