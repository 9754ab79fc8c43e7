"""Products of a few sparse rows."""

import numpy as np
import pytest
from scipy import sparse

from unidex.sparse_rows import sparse_product


@pytest.mark.parametrize("num_rows", [0, 1, 3, 8, 9])
def test_the_product_of_a_few_rows_is_that_of_scipy(num_rows):
    rng = np.random.default_rng(num_rows)
    left = sparse.random_array((num_rows, 40), density=0.3, format="csr", rng=rng, dtype=np.float32)
    right = sparse.random_array((40, 15), density=0.3, format="csr", rng=rng, dtype=np.float32)
    right.data[::5] *= -1
    left.sort_indices()
    right.sort_indices()
    expected = left @ right
    expected.sort_indices()
    product = sparse_product(left, right)
    assert product.shape == expected.shape
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(getattr(product, name), getattr(expected, name))


def test_a_sum_of_0_is_not_stored():
    left = sparse.csr_array(np.array([[1, 1]], dtype=np.float32))
    right = sparse.csr_array(np.array([[2, 0, 1], [-2, 3, 0]], dtype=np.float32))
    assert sparse_product(left, right).indices.tolist() == [1, 2]
