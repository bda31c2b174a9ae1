"""Large files are read in little memory: the largest are in the benchmark."""

import pytest

from bench.extract import added_memory, large_csv, long_pdf

MB = 1_000_000


def test_a_table_adds_a_few_times_its_size():
    """About 150 to 205 MB are taken: it is looked now and then, and the allocator has its ways."""
    assert added_memory("a.csv", large_csv(10 * MB)) < 260 * MB


@pytest.mark.slow
def test_a_long_pdf_adds_little():
    assert added_memory("a.pdf", long_pdf(600)) < 300 * MB
