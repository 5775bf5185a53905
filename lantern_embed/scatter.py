"""Add rows into a table, also where an id repeats."""

import numpy as np


def scatter_add(table, idx, rows):
    """Add each row into the table row that its id names, in place.

    Gives the same bytes as ``np.add.at(table, idx, rows)``, faster.

    Parameters
    ----------
    table : ndarray, shape (V, C)
        Changed in place.
    idx : array of int, shape (...)
        Row numbers; a row named n times receives n additions, in order.
    rows : array, shape (..., C)
        What is added.

    Raises
    ------
    IndexError
        If an id is outside the table; the table is then unchanged.

    Notes
    -----
    ``np.add.at`` is unbuffered: it finishes one addition before it starts
    the next, so no repeat is lost. NumPy has a fast loop for it when table
    and indices are one-dimensional. Entry (i, c) of a table with C columns
    is entry ``i * C + c`` of the same table laid out flat, so the flat
    problem is the same problem: the same additions in the same order.

    Examples
    --------
    >>> table = np.zeros((3, 2))
    >>> scatter_add(table, np.array([0, 2, 0]), np.ones((3, 2)))
    >>> table
    array([[2., 2.],
           [0., 0.],
           [1., 1.]])
    """
    if not _fits_the_flat_loop(table, idx, rows):
        np.add.at(table, idx, rows)
        return
    C = table.shape[1]
    flat = idx.astype(np.intp)[..., None] * C + np.arange(C)  # (..., C)
    np.add.at(table.reshape(-1), flat.reshape(-1), rows.reshape(-1))


def _fits_the_flat_loop(table, idx, rows):
    # Anything unusual, an id outside the table included, is left to NumPy:
    # then the result, or the error, is NumPy's own.
    return (
        type(table) is type(idx) is type(rows) is np.ndarray
        and table.ndim == 2
        and table.flags.c_contiguous
        and table.flags.writeable  # the flat loop would not look
        and table.dtype == rows.dtype
        and idx.dtype.kind in "iu"
        and rows.shape == idx.shape + table.shape[1:]
        and (idx.size == 0 or _all_within(idx, len(table)))
        # Where nan meets nan, the two loops keep different ones.
        and not (rows.dtype.kind in "fc" and np.isnan(rows).any())
    )


def _all_within(idx, V):
    return -V <= idx.min() and idx.max() < V
