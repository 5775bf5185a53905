"""Three layers for the last exercise of the series.

Reading on gives the answer away. The exercise is to find it with
`check_gradients` and a batch of your own choice.
"""

import numpy as np

from ..layer import EmbeddingLayer


def mystery_layers():
    """Return three layers, of which exactly one has a wrong backward.

    Returns
    -------
    dict of str to EmbeddingLayer
        Keys "A", "B", "C"; each with vocab_size 24, block_size 32, C 8.

    Examples
    --------
    >>> sorted(mystery_layers())
    ['A', 'B', 'C']
    """
    layers = {"A": LayerA, "B": LayerB, "C": LayerC}
    return {name: layer(24, 32, 8) for name, layer in layers.items()}


class _Layer(EmbeddingLayer):
    def backward(self, dout):
        idx, T = self.cache
        self.dE = self._scatter(
            idx.reshape(-1), dout.reshape(-1, len(self.E.T))
        )
        self.dP = np.zeros_like(self.P)
        self.dP[:T] = dout.sum(axis=0)


class LayerA(_Layer):
    """Goes through the uses one by one."""

    def _scatter(self, ids, slices):
        dE = np.zeros_like(self.E)
        for i, piece in zip(ids, slices, strict=True):
            dE[i] += piece
        return dE


class LayerB(_Layer):
    """Sorts the uses, so that those of one id are neighbours."""

    def _scatter(self, ids, slices):
        dE = np.zeros_like(self.E)
        by_id = np.argsort(ids, kind="stable")
        used, start = np.unique(ids[by_id], return_index=True)
        dE[used] = slices[by_id[start]]
        again = np.setdiff1d(np.arange(len(ids)), start)
        again = again[np.isin(again - 1, start)]
        dE[ids[by_id[again]]] += slices[by_id[again]]
        return dE


class LayerC(_Layer):
    """Multiplies by a matrix with a 1 where a use names a row."""

    def _scatter(self, ids, slices):
        return (ids == np.arange(len(self.E))[:, None]) @ slices
