"""Run the notebooks from fresh kernels and save them in canonical form.

``python tests/refresh.py`` refreshes all four, or those named. A second run
changes nothing: whatever differs from run to run is left out of the file.
The picture at the top of README is a copy of the heatmap of stage 1.
"""

import base64
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"
METADATA = {
    "kernelspec": {
        "display_name": "Python 3 (ipykernel)",
        "language": "python",
        "name": "python3",
    },
    "language_info": {"name": "python"},
    # In the live slides a picture that grows below its code stays in sight;
    # a theme that fetches no fonts.
    "rise": {"center": False, "theme": "serif"},
}
CELL_METADATA = {"slideshow", "tags", "jupyter"}
PICTURE = NOTEBOOKS / "e_and_p.png"
WIDGET = "application/vnd.jupyter.widget-view+json"


def refresh(path):
    """Execute one notebook and overwrite it.

    Parameters
    ----------
    path : pathlib.Path
        The notebook.

    Raises
    ------
    nbclient.exceptions.CellExecutionError
        If a cell fails; the file is then unchanged.
    """
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        kernel_name="python3",
        coalesce_streams=True,
        record_timing=False,
        store_widget_state=False,
        # Quiet: ipykernel warns that a local kernel talks unencrypted.
        extra_arguments=["--IPKernelApp.log_level=ERROR"],
    ).execute()
    canonical(notebook)
    nbformat.write(notebook, path)


def canonical(notebook):
    """Drop from a notebook what differs from run to run or tool to tool.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        Changed in place.
    """
    notebook.metadata = nbformat.from_dict(METADATA)
    notebook.nbformat_minor = 5
    for cell in notebook.cells:
        for key in set(cell.metadata) - CELL_METADATA:
            del cell.metadata[key]
        for output in cell.get("outputs", []):
            # A widget's id is an address in one kernel, gone with it.
            output.get("data", {}).pop(WIDGET, None)


def picture(notebook):
    """Return the bytes of the last PNG that a notebook shows.

    Parameters
    ----------
    notebook : nbformat.NotebookNode
        With its outputs.

    Returns
    -------
    bytes
    """
    datas = [
        o.get("data", {}) for c in notebook.cells for o in c.get("outputs", [])
    ]
    pngs = [data["image/png"] for data in datas if "image/png" in data]
    return base64.b64decode(pngs[-1])


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:] or sorted(NOTEBOOKS.glob("*.ipynb"))):
        refresh(path)
        print(f"refreshed {path.name}")
    first = nbformat.read(NOTEBOOKS / "1_class.ipynb", as_version=4)
    PICTURE.write_bytes(picture(first))
