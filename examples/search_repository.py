"""Find the files that a text is about: python examples/search_repository.py REPOSITORY "TEXT" [RETRIEVER].

RETRIEVER is hybrid (no model), bm25, static, models:/NAME@ALIAS in MLflow, or the folder of a policy.
"""

import sys

import codegrep


def main(repository: str, text: str, name: str = "hybrid") -> None:
    """Print files with line ranges, and why they were chosen."""
    retriever = codegrep.Retriever.load(name)
    for answer in retriever.search(text, repo=repository, k=3, why=True):
        print(f"{answer.path}:{answer.start}-{answer.end}  {answer.evidence}")
        for reason in answer.why:
            print(f"    {reason}")


if __name__ == "__main__":
    main(*sys.argv[1:])
