"""A loss of a user's own: one file with its settings, its class and a line in the recipe."""

from __future__ import annotations

from pathlib import Path

from small_run import SMALL, Reference, metrics, same, weights

from velodrome.training.start import train

MINE = """
from pydantic import Field
from velodrome.training.losses import Loss
from velodrome.training.settings import LossSettings, LossTerm, RunSettings

class SquareSettings(LossSettings):
    coef: float = Field(0.0, ge=0, description="weight")
    start: int = Field(640, ge=0, description="first agent step")

    def terms(self, name, start, total):
        yield LossTerm(name, f"{__name__}:Square", self, self.start, total)

class Square(Loss):
    reports = ("square",)

    def __call__(self, batch, policy, values_B, step):
        square = values_B.square().mean()
        return self.term.settings.coef * square, square.detach().reshape(1)

def mine() -> RunSettings:
    return RunSettings(run="small", losses={"square": SquareSettings()})
"""


def test_a_recipe_adds_a_loss_of_its_own_with_settings_a_range_and_a_metric(tmp_path: Path, reference: Reference):
    path = tmp_path / "mine.py"
    path.write_text(MINE)
    values = {**SMALL, "output.train_dir": str(tmp_path)}
    idle, active = (train(str(path), {**values, "losses.square.coef": coef}) for coef in (0, "1e1"))
    for result in (idle, active):
        lines = metrics(result.folder)
        assert [line["step"] for line in lines if "square" in line] == list(range(704, 1025, 64))
        assert [line["phase"] for line in lines] == ["supervised"] * 8 + ["ppo"] * 8
    assert same(weights(idle.folder), weights(reference("mlp").folder))
    assert not same(weights(active.folder), weights(idle.folder))
    assert metrics(active.folder)[-1]["square"] < metrics(idle.folder)[-1]["square"]
    assert idle.folder != active.folder
