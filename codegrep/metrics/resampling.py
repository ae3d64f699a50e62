"""Draws for bootstrap and permutation tests, vectorised and cut into blocks so that memory stays bounded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
_BLOCK = 4_000_000  # numbers drawn at once, 32 MB


def resampled_means(values: Floats, resamples: int, generator: np.random.Generator) -> Floats:
    """(resamples,) means of issues drawn with replacement.

    Args:
        values: (n,) one number an issue, n >= 1.
    """
    means = np.empty(resamples)
    for start, stop in _blocks(resamples, len(values)):
        draws = generator.integers(0, len(values), size=(stop - start, len(values)))
        means[start:stop] = values[draws].mean(axis=1)
    return means


def clustered_means(values: Floats, clusters: Sequence[str], resamples: int, generator: np.random.Generator) -> Floats:
    """(resamples,) means of a two-stage draw: clusters with replacement, then issues within each drawn cluster.

    The mean is over all drawn issues, so a large repository weighs as much as its issues, as in the plain mean.

    Args:
        values: (n,) one number an issue.
        clusters: (n,) its repository.
    """
    labels, members = np.unique(np.asarray(clusters), return_inverse=True)
    totals, counts = np.zeros(resamples), np.zeros(resamples)
    drawn = generator.integers(0, len(labels), size=(resamples, len(labels)))
    for cluster in range(len(labels)):
        own = values[members == cluster]
        # Row r appears once for every time that resample r drew this cluster.
        rows = np.nonzero(drawn == cluster)[0]
        for start, stop in _blocks(len(rows), len(own)):
            sums = own[generator.integers(0, len(own), size=(stop - start, len(own)))].sum(axis=1)
            np.add.at(totals, rows[start:stop], sums)
            np.add.at(counts, rows[start:stop], len(own))
    means: Floats = totals / counts
    return means


def clustered_weights(clusters: Sequence[str], resamples: int, generator: np.random.Generator) -> Iterator[Floats]:
    """The draws of `clustered_means` as weights, for statistics that need the same draw of issues several times.

    Args:
        clusters: (n,) repository of each issue.

    Yields:
        Blocks of (b, n) weights, `resamples` rows together; each row sums to 1.
    """
    labels, members = np.unique(np.asarray(clusters), return_inverse=True)
    sizes = np.bincount(members)
    for start, stop in _blocks(resamples, len(members)):
        times = generator.multinomial(len(labels), np.full(len(labels), 1 / len(labels)), size=stop - start)
        weights = np.empty((stop - start, len(members)))
        for cluster, size in enumerate(sizes):
            # A cluster that was drawn k times gives k * size draws of its issues.
            weights[:, members == cluster] = generator.multinomial(
                times[:, cluster] * size, np.full(size, 1 / size), size=stop - start
            )
        yield weights / weights.sum(axis=1, keepdims=True)


def flipped_means(values: Floats, units: NDArray[np.intp], flips: Iterator[NDArray[np.float64]]) -> Iterator[Floats]:
    """Means of `values` after each block of sign flips.

    Args:
        values: (n,) differences.
        units: (n,) number of the unit that each difference belongs to; a unit is flipped as a whole.
        flips: blocks of (b, units) signs, +1 or -1.
    """
    sums = np.bincount(units, weights=values)
    for block in flips:
        yield block @ sums / len(values)


def random_signs(units: int, resamples: int, generator: np.random.Generator) -> Iterator[NDArray[np.float64]]:
    """Blocks of (b, units) random signs, `resamples` rows together."""
    for start, stop in _blocks(resamples, units):
        yield np.where(generator.integers(0, 2, size=(stop - start, units)) == 1, 1.0, -1.0)


def every_sign(units: int) -> Iterator[NDArray[np.float64]]:
    """All 2**units rows of signs, in blocks."""
    for start, stop in _blocks(2**units, units):
        numbers = np.arange(start, stop, dtype=np.int64)[:, None]
        yield np.where((numbers >> np.arange(units)) & 1 == 1, 1.0, -1.0)


def _blocks(rows: int, columns: int) -> Iterator[tuple[int, int]]:
    step = max(1, _BLOCK // max(1, columns))
    for start in range(0, rows, step):
        yield start, min(rows, start + step)
