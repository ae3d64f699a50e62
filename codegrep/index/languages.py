"""Which nodes of a tree-sitter grammar define functions and classes, for each programming language that is parsed."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from functools import cache
from pathlib import PurePosixPath

from tree_sitter import Language, Parser, Query

_JAVASCRIPT = """
(function_declaration) @function (generator_function_declaration) @function (method_definition) @function
(variable_declarator value: [(arrow_function) (function_expression)]) @function
(assignment_expression right: [(arrow_function) (function_expression)]) @function
(class_declaration) @class
"""
_TYPESCRIPT = f"""{_JAVASCRIPT}
(abstract_class_declaration) @class (interface_declaration) @class (enum_declaration) @class (internal_module) @class
(type_alias_declaration) @class
"""
_C = """
(function_definition) @function (struct_specifier body: (_)) @class (enum_specifier body: (_)) @class
(union_specifier body: (_)) @class
"""
_CPP = f"{_C} (class_specifier body: (_)) @class (namespace_definition) @class"
_GO = "(function_declaration) @function (method_declaration) @function (type_spec) @class"
_JAVA = """
(method_declaration) @function (constructor_declaration) @function (class_declaration) @class
(interface_declaration) @class (enum_declaration) @class (record_declaration) @class
"""
_RUST = """
(function_item) @function (macro_definition) @function (struct_item) @class (enum_item) @class (trait_item) @class
(impl_item) @class (mod_item body: (_)) @class
"""
_PYTHON = "(function_definition) @function (class_definition) @class"

# Name -> module of the grammar, its function, its definitions.
_GRAMMARS = {
    "python": ("tree_sitter_python", "language", _PYTHON),
    "javascript": ("tree_sitter_javascript", "language", _JAVASCRIPT),
    "typescript": ("tree_sitter_typescript", "language_typescript", _TYPESCRIPT),
    "tsx": ("tree_sitter_typescript", "language_tsx", _TYPESCRIPT),
    "go": ("tree_sitter_go", "language", _GO),
    "java": ("tree_sitter_java", "language", _JAVA),
    "rust": ("tree_sitter_rust", "language", _RUST),
    "c": ("tree_sitter_c", "language", _C),
    "cpp": ("tree_sitter_cpp", "language", _CPP),
}
_SUFFIXES = {
    **dict.fromkeys((".py", ".pyi"), "python"),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), "javascript"),
    **dict.fromkeys((".ts", ".mts", ".cts"), "typescript"),
    ".tsx": "tsx",
    ".go": "go",
    ".java": "java",
    ".rs": "rust",
    ".c": "c",
    **dict.fromkeys((".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"), "cpp"),
}


@dataclass(frozen=True)
class Grammar:
    """A parser of one language and the query that captures its definitions as "function" and "class"."""

    parser: Parser
    definitions: Query


def language_of(path: str) -> str:
    """Name of the language that a file's suffix stands for; "" for files that are not parsed."""
    return _SUFFIXES.get(PurePosixPath(path).suffix.lower(), "")


@cache
def grammar(language: str) -> Grammar:
    """Load the grammar of a language that `language_of` names."""
    module, function, definitions = _GRAMMARS[language]
    loaded = Language(getattr(importlib.import_module(module), function)())
    return Grammar(Parser(loaded), Query(loaded, definitions))
