"""A real Jupyter kernel: a cell awaits the calls in its own loop, and the progress bar is a widget."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.patience import DEADLINE_S

CELLS = (
    """
import velodrome as velo

class Weather(velo.Environment):
    def verify(self, task, response):
        return float("sunny" in response.text)

async def model(request):
    return "It is sunny."

agent = velo.SimpleAgent(model=model, environment=Weather())
run = await velo.collect(["Oslo?", "Rome?"], agent, out="weather.jsonl", repeats=3)
run
""",
    'velo.read("weather.jsonl").to_pandas().reward.sum()',
)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # the kernel's own
def test_cells_collect_and_read_with_a_widget_for_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import nbclient
    import nbformat

    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))  # nothing is left in the home folder
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    client = nbclient.NotebookClient(notebook, timeout=DEADLINE_S, resources={"metadata": {"path": str(tmp_path)}})
    client.execute()
    bar, run = notebook.cells[0].outputs
    assert "application/vnd.jupyter.widget-view+json" in bar.data
    assert run.data["text/plain"] == "<Run: requested 6 = kept 6 + failed 0>"
    assert notebook.cells[1].outputs[0].data["text/plain"] == "np.float64(6.0)"
