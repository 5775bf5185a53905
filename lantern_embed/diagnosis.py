"""Name the mistake behind a wrong output or a wrong gradient."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Verdict:
    passed: bool
    reason: str = ""
    where: tuple | None = None


def diagnose_out(out, idx, E, P, *, names=None):
    ref = E[idx] + P[: idx.shape[1]]
    ok = np.shape(out) == ref.shape and np.allclose(out, ref)
    return Verdict(ok, "" if ok else "the output is wrong")


def diagnose_dE(dE, idx, dout, E, *, previous=None, names=None):
    ref = np.zeros_like(E)
    np.add.at(ref, idx, dout)
    ok = np.shape(dE) == ref.shape and np.allclose(dE, ref)
    return Verdict(ok, "" if ok else "dE is wrong")


def diagnose_dP(dP, idx, dout, P, *, previous=None):
    ref = np.zeros_like(P)
    ref[: idx.shape[1]] = dout.sum(axis=0)
    ok = np.shape(dP) == ref.shape and np.allclose(dP, ref)
    return Verdict(ok, "" if ok else "dP is wrong")


def diagnose_unchanged(after, before, name, *, names=None):
    ok = after.shape == before.shape and np.array_equal(after, before)
    return Verdict(ok, "" if ok else f"{name} was changed")
