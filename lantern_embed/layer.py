"""The input stage of a GPT: token ids in, position-aware vectors out."""

import operator

import numpy as np

from .scatter import scatter_add


class EmbeddingLayer:
    """A token table E plus a learned position table P.

    Token id i at position t becomes the vector ``E[i] + P[t]``.

    Parameters
    ----------
    vocab_size : int
        How many different tokens there are: rows of E.
    block_size : int
        The longest sequence the layer accepts: rows of P.
    C : int
        Channels, the length of each vector: columns of both tables.
    seed : int, optional
        Seed of the one generator that draws E, then P.

    Attributes
    ----------
    E : ndarray, shape (vocab_size, C)
        Token table, float64, normal with standard deviation 0.02, as that
        of GPT-2. In another memory order than C, each forward copies it.
    P : ndarray, shape (block_size, C)
        Position table, drawn likewise (GPT-2 starts its own at 0.01).
    cache : tuple (idx, T) or None
        What the last forward keeps for backward.
    dE, dP : ndarray or None
        Gradients of the loss, shaped like E and P, set by backward.

    Raises
    ------
    TypeError, ValueError
        If a size is not an integer, or not positive.

    Examples
    --------
    >>> layer = EmbeddingLayer(vocab_size=24, block_size=32, C=16)
    >>> layer.forward([[19, 8, 5]]).shape
    (1, 3, 16)

    References
    ----------
    Radford et al., "Improving Language Understanding by Generative
    Pre-Training" (2018), equation 2: learned token and position tables,
    added.
    """

    def __init__(self, vocab_size, block_size, C, seed=42):
        vocab_size = _positive_int(vocab_size, "vocab_size")
        block_size = _positive_int(block_size, "block_size")
        C = _positive_int(C, "C")
        rng = np.random.default_rng(seed)
        self.E = rng.standard_normal((vocab_size, C)) * 0.02
        self.P = rng.standard_normal((block_size, C)) * 0.02
        self.cache = None
        self.dE = None
        self.dP = None

    def forward(self, idx):
        """Look up every token, add every position.

        Parameters
        ----------
        idx : array of int, shape (B, T)
            Token ids in ``range(vocab_size)``, with T <= block_size.

        Returns
        -------
        ndarray, shape (B, T, C)
            ``E[idx] + P[:T]``, a fresh array.

        Raises
        ------
        TypeError
            If `idx` does not hold integers.
        ValueError
            If `idx` is not two-dimensional, or T > block_size.
        IndexError
            If an id is outside the table; names it and its place.
        """
        idx = _checked_ids(idx, len(self.E), len(self.P))
        T = idx.shape[1]
        out = self.E.take(idx, axis=0)  # gather, E[idx]: (B, T, C)
        out += self.P[:T]  # the same T rows for each sequence
        self.cache = (idx, T)
        return out

    def backward(self, dout):
        """Turn the gradient of the output into gradients of E and P.

        Sets `dE` and `dP` afresh and returns None: ids are integers, so
        there is no gradient to hand further down.

        Parameters
        ----------
        dout : array, shape (B, T, C)
            Gradient of the loss with respect to forward's output.

        Raises
        ------
        RuntimeError
            If forward has not run yet.
        TypeError
            If `dout` does not hold real numbers.
        ValueError
            If `dout` is not shaped like forward's output.

        Notes
        -----
        ``out[b, t] = E[idx[b, t]] + P[t]``, so by the chain rule row i of
        dE is the sum of ``dout[b, t]`` over all (b, t) with
        ``idx[b, t] == i``, and row t of dP is the sum over b.
        """
        if self.cache is None:
            raise RuntimeError("backward needs a forward first: cache is None")
        idx, T = self.cache
        dout = _checked_dout(dout, (*idx.shape, self.E.shape[1]), self.E.dtype)
        # Not zeros_like, which would touch every row of a large table now.
        dE = np.zeros(self.E.shape, self.E.dtype)
        scatter_add(dE, idx, dout)  # a repeated id collects every slice
        dP = np.zeros(self.P.shape, self.P.dtype)
        dP[:T] = dout.sum(axis=0)  # rows T.. were not used: they stay 0
        self.dE, self.dP = dE, dP


def _positive_int(n, name):
    if isinstance(n, (bool, np.bool_)):
        raise TypeError(f"{name} must be a positive integer, got {n!r}")
    try:
        n = operator.index(n)
    except TypeError:
        raise TypeError(
            f"{name} must be a positive integer, got {n!r}"
        ) from None
    if n < 1:
        raise ValueError(f"{name} must be a positive integer, got {n}")
    return n


def _checked_ids(idx, vocab_size, block_size):
    """Return idx as a fresh array of intp, or say what is wrong with it."""
    try:
        ids = np.asarray(idx)
    except ValueError:  # NumPy's own message speaks of inhomogeneous shapes
        raise ValueError(
            "idx must have shape (B, T): its sequences differ in length"
        ) from None
    if ids.size == 0 and isinstance(idx, list | tuple):
        ids = ids.astype(np.intp)  # [[]] holds no float, whatever NumPy says
    if ids.dtype.kind not in "iu":
        raise TypeError(f"idx must hold integers, got dtype {ids.dtype}")
    if ids.ndim != 2:
        T = ids.shape[-1] if ids.ndim else 1
        B = ids.size // T if T else 0
        raise ValueError(
            f"idx must have shape (B, T), got shape {ids.shape}; "
            f"idx.reshape({B}, {T}) has two dimensions"
        )
    if ids.shape[1] > block_size:
        raise ValueError(
            f"T = {ids.shape[1]} is larger than block_size = {block_size}"
        )
    # NumPy would read a negative id from the end of the table.
    if ids.size and (ids.min() < 0 or ids.max() >= vocab_size):
        b, t = np.argwhere((ids < 0) | (ids >= vocab_size))[0]
        raise IndexError(
            f"id {ids[b, t]} at (b, t) = ({b}, {t}) is outside "
            f"0..{vocab_size - 1} (vocab_size is {vocab_size})"
        )
    return ids.astype(np.intp)  # a copy: later changes must not reach cache


def _checked_dout(dout, shape, dtype):
    """Return dout in E's dtype, or say what is wrong with it."""
    dout = np.asarray(dout)
    if dout.dtype.kind not in "iuf":
        raise TypeError(f"dout must hold real numbers, got dtype {dout.dtype}")
    if dout.shape != shape:
        raise ValueError(
            f"dout has shape {dout.shape}, but forward returned {shape}"
        )
    return np.asarray(dout, dtype)
