"""One attention head: what consumes the embedding further on."""

import numpy as np


def softmax(x, axis=-1):
    """Turn scores into weights that are not negative and sum to 1.

    Parameters
    ----------
    x : array
        Scores.
    axis : int, optional
        The axis along which the weights sum to 1.

    Returns
    -------
    ndarray
        Shaped like `x`.

    Examples
    --------
    >>> softmax(np.array([1000.0, 1000.0]))
    array([0.5, 0.5])
    """
    x = np.asarray(x)
    # Taking the maximum away changes no weight and keeps exp from overflow.
    weights = np.exp(x - x.max(axis=axis, keepdims=True))
    return weights / weights.sum(axis=axis, keepdims=True)


def self_attention(X, Wq, Wk, Wv):
    """Let each position take a weighted mean over all positions.

    Parameters
    ----------
    X : ndarray, shape (B, T, C)
        One vector per position.
    Wq, Wk, Wv : ndarray, shape (C, hs)
        Query, key and value weights.

    Returns
    -------
    ndarray, shape (B, T, hs)
        ``softmax(Q @ K.T / sqrt(hs)) @ V``, without a mask: each position
        sees all, itself included.

    References
    ----------
    Vaswani et al., "Attention Is All You Need" (2017), equation 1.

    Examples
    --------
    >>> X, W = np.ones((2, 5, 8)), np.ones((8, 4))
    >>> self_attention(X, W, W, W).shape
    (2, 5, 4)
    """
    Q, K, V = X @ Wq, X @ Wk, X @ Wv  # (B, T, hs) each
    scores = Q @ K.swapaxes(-2, -1) / np.sqrt(Q.shape[-1])  # (B, T, T)
    return softmax(scores) @ V  # (B, T, hs)
