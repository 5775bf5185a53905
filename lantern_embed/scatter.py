"""Add rows into a table, also where an id repeats."""

import numpy as np

FEWEST = 2000  # values to add, from which on the flat loop is quicker


def scatter_add(table, idx, rows):
    """Add each row into the table row that its id names, in place.

    Gives the same bytes as ``np.add.at(table, idx, rows)``, and is faster on
    a large batch, which goes through `scatter_add_flat`.

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

    Examples
    --------
    >>> table = np.zeros((3, 2))
    >>> scatter_add(table, np.array([0, 2, 0]), np.ones((3, 2)))
    >>> table
    array([[2., 2.],
           [0., 0.],
           [1., 1.]])
    """
    if _fits_the_flat_loop(table, idx, rows):
        # When two nans meet, which of them stays depends on the loop. So a
        # nan is left to NumPy: look in the sums if they are few, else in rows.
        if _is_small(table.shape, idx):
            sums = table.copy()
            with np.errstate(invalid="ignore"):  # NumPy warns of a nan below
                scatter_add_flat(sums, idx, rows)
            if not _has_nan(sums):
                table[...] = sums
                return
        elif not _has_nan(rows):
            scatter_add_flat(table, idx, rows)
            return
    np.add.at(table, idx, rows)


def scatter_add_flat(table, idx, rows):
    """Add rows as `scatter_add` does, entry by entry of a flat table.

    Parameters
    ----------
    table : ndarray, shape (V, C)
        Floats, contiguous in memory; changed in place.
    idx : array of int, shape (...)
        Row numbers, all inside the table.
    rows : array, shape (..., C)
        What is added, of the dtype of table.

    Notes
    -----
    ``np.add.at`` is unbuffered: it finishes one addition before it starts
    the next, so no repeat is lost. NumPy has a fast loop for it when table
    and indices are one-dimensional. So lay the table out flat and number
    its entries: row i, column c is entry ``i * C + c``. Adding rows by id
    and adding entries by number are the same additions in the same order.

    Two floats side by side can be read as one complex number. Complex
    numbers add part by part, so these are still the same additions, with
    half as many numbers to look up.

    Examples
    --------
    >>> table = np.zeros((3, 2))
    >>> scatter_add_flat(table, np.array([2, 0]), np.ones((2, 2)))
    >>> table
    array([[1., 1.],
           [0., 0.],
           [1., 1.]])
    """
    rows = np.ascontiguousarray(rows)
    if table.shape[1] % 2 == 0:
        pair = np.result_type(table, np.complex64)
        table, rows = table.view(pair), rows.view(pair)  # (V, C / 2)
    numbers = _entry_numbers(table.shape, idx.astype(np.intp))
    np.add.at(table.reshape(-1), numbers.reshape(-1), rows.reshape(-1))


def _entry_numbers(shape, idx):
    """Return the numbers of the entries in the rows that idx names."""
    V, C = shape
    if _is_small(shape, idx):  # number it all, then pick rows of numbers
        return np.arange(V * C).reshape(V, C).take(idx, axis=0)
    return idx[..., None] * C + np.arange(C)  # (..., C)


def _is_small(shape, idx):
    return 4 * shape[0] <= idx.size  # rows of the table, rows to add


def _has_nan(array):
    return np.isnan(array.max())  # max hands a nan on


def _fits_the_flat_loop(table, idx, rows):
    # A small batch, and anything unusual, is left to NumPy: then the result,
    # or the error, is NumPy's own.
    return (
        type(table) is type(idx) is type(rows) is np.ndarray
        and table.ndim == 2
        and table.flags.carray  # contiguous, aligned, writeable
        and table.dtype == rows.dtype
        and table.dtype in (np.float32, np.float64)
        and idx.dtype.kind in "iu"
        and rows.size >= FEWEST
        and rows.shape == idx.shape + table.shape[1:]
        and -len(table) <= idx.min()
        and idx.max() < len(table)
    )
