"""Time the layer against its rivals: run ``python tests/benchmark.py``.

Rivals run in turn, round after round, in one process, so a busy machine
slows all of them alike: the medians may move, the ratios hardly do.
"""

import os
import platform
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path

import numpy as np

from lantern_embed import EmbeddingLayer, check_gradients, data

try:
    import torch
except ImportError:
    torch = None

SIZES = [  # V, T, C, B, rounds
    (24, 32, 16, 2, 400),  # the lesson
    (65, 256, 64, 16, 150),  # a small character-level GPT
    (50257, 1024, 768, 4, 7),  # GPT-2
]


def in_turn(steps, rounds):
    """Time every step once a round, right after a run that is not timed.

    So each finds memory and caches as it left them itself, as in a loop.

    Returns milliseconds: for each name in `steps`, an array (rounds, 2) of
    wall time and CPU time (all threads together).
    """
    times = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            step()
            start = time.perf_counter(), time.process_time()
            kept = step()  # freed after the clock has stopped, for everyone
            stop = time.perf_counter(), time.process_time()
            times[name].append(1e3 * np.subtract(stop, start))
            del kept
    return {name: np.array(ms) for name, ms in times.items()}


def show(title, times, digits=3):
    """Print median wall and CPU time, and the first entry's share of each."""
    first, *_ = times
    share = f"{first} / row"
    print(f"\n{title:<40}{'wall ms':>9}{share:>14}{'CPU ms':>9}{share:>14}")
    for name, ms in times.items():
        (wall, cpu), ratio = np.median(ms, 0), np.median(times[first] / ms, 0)
        print(
            f"  {name:<38}{wall:>9.{digits}f}{ratio[0]:>14.2f}"
            f"{cpu:>9.{digits}f}{ratio[1]:>14.2f}"
        )


def describe_machine():
    """Return the line that a quoted number needs beside it."""
    rival = f"PyTorch {torch.__version__}" if torch else "no PyTorch"
    return (
        f"{platform.system()} {platform.machine()}, {os.cpu_count()} CPUs, "
        f"Python {platform.python_version()}, NumPy {np.__version__}, {rival}"
    )


def make_batch(V, T, C, B):
    """Return a layer, ids that repeat, and a gradient of the output."""
    rng = np.random.default_rng(0)
    idx = rng.integers(0, V, (B, T))
    return EmbeddingLayer(V, T, C), idx, rng.standard_normal((B, T, C))


def layer_step(layer, idx, dout):
    """Run forward and backward of the packaged layer."""
    out = layer.forward(idx)
    layer.backward(dout)
    return out, layer.dE, layer.dP


def formula_step(E, P, idx, dout):
    """Run the plain formula that the layer has to equal."""
    T = idx.shape[1]
    out = E[idx] + P[:T]
    dE, dP = np.zeros_like(E), np.zeros_like(P)
    np.add.at(dE, idx, dout)
    dP[:T] = dout.sum(0)
    return out, dE, dP


def torch_step(layer, idx, dout):
    """Return a function that does the same in PyTorch, on the same tables."""
    E, P, idx, dout = map(torch.from_numpy, (layer.E, layer.P, idx, dout))
    E = torch.nn.Embedding.from_pretrained(E, freeze=False)
    P = torch.nn.Embedding.from_pretrained(P, freeze=False)
    t = torch.arange(idx.shape[1])

    def step():
        E.weight.grad = P.weight.grad = None
        out = E(idx) + P(t)
        out.backward(dout)
        return out, E.weight.grad, P.weight.grad

    return step


def time_layer(V, T, C, B, rounds):
    """Time forward and backward at one size, once the bytes agree."""
    layer, idx, dout = make_batch(V, T, C, B)
    steps = {
        "layer": lambda: layer_step(layer, idx, dout),
        "plain formula": lambda: formula_step(layer.E, layer.P, idx, dout),
    }
    results = (step() for step in steps.values())
    for name, ours, formula in zip(("out", "dE", "dP"), *results, strict=True):
        if ours.tobytes() != formula.tobytes():
            sys.exit(f"{name} of the layer differs from the plain formula's")
    steps["copy of the output"] = dout.copy  # one pass: the memory floor
    title = f"V={V} T={T} C={C} B={B}, forward + backward"
    if not torch:
        show(title, in_turn(steps, rounds))
        return
    default = torch.get_num_threads()
    for threads in sorted({default, 1}, reverse=True):
        torch.set_num_threads(threads)
        rival = {f"PyTorch, {threads} thread(s)": torch_step(layer, idx, dout)}
        show(title, in_turn(steps | rival, rounds))
    torch.set_num_threads(default)


def show_peak(title, step, array, nbytes):
    """Print the most memory that a step holds, beside its result's size."""
    tracemalloc.start()
    step(array)
    high = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    print(f"  {title:<38}{high / 1e6:>9.3f}{nbytes / 1e6:>11.3f}")


def show_memory():
    """Print the peaks: forward's result is out, backward's are dE and dP."""
    print(f"\n{'peak memory in MB':<40}{'peak':>9}{'result':>11}")
    for V, T, C, B, _ in SIZES:
        layer, idx, dout = make_batch(V, T, C, B)
        title = f"V={V} T={T} C={C} B={B}"
        gradients = layer.E.nbytes + layer.P.nbytes
        show_peak(f"{title}, forward", layer.forward, idx, dout.nbytes)
        show_peak(f"{title}, backward", layer.backward, dout, gradients)


def time_checks():
    """Time the gradient check of every entry, and of a sample."""
    lesson, few = EmbeddingLayer(24, 32, 16), data[:16].reshape(1, 16)
    gpt, many, _ = make_batch(65, 256, 64, 16)
    steps = {
        "lesson, every entry": lambda: check_gradients(lesson, few),
        "(65, 256, 64), 4 rows": lambda: check_gradients(gpt, many, sample=4),
    }
    print(f"\n{'gradient check':<40}{'wall ms':>9}")
    for name, ms in in_turn(steps, 5).items():
        print(f"  {name:<38}{np.median(ms[:, 0]):>9.1f}")


def time_imports():
    """Time a fresh Python that imports the package, or NumPy alone."""
    root = Path(__file__).parents[1]
    env = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}  # compile only once

    def starting(module):
        command = [sys.executable, "-c", f"import {module}"]
        return lambda: subprocess.run(command, cwd=root, env=env, check=True)

    steps = {m: starting(m) for m in ("lantern_embed", "numpy")}
    ours, numpys = (ms[:, 0] for ms in in_turn(steps, 21).values())
    print(f"\n{'import, whole process':<40}{'wall ms':>9}")
    print(f"  {'lantern_embed':<38}{np.median(ours):>9.1f}")
    print(f"  {'numpy':<38}{np.median(numpys):>9.1f}")
    print(f"  {'ratio':<38}{np.median(ours / numpys):>9.2f}")


def time_redraw():
    """Time what one move of the lesson's slider draws."""
    try:
        from lantern_embed.lesson.explore import batch_heatmaps, heatmaps_png
    except ImportError as missing:
        print(f"\nslider: skipped, {missing}")
        return
    layer = EmbeddingLayer(24, 32, 16)

    def move():
        return heatmaps_png(*batch_heatmaps(layer, 3, 8), label="gradient")

    (ms,) = in_turn({"move": move}, 9).values()
    print(f"\n{'slider, one redraw':<40}{np.median(ms[:, 0]):>9.1f}")


if __name__ == "__main__":
    print(describe_machine())
    for size in SIZES:
        time_layer(*size)
    show_memory()
    time_checks()
    time_imports()
    time_redraw()
