"""The best weights and those of each phase's end are kept, the same ones however often the run is killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.patience import DEADLINE_S
from tests.support.small_run import metrics, same, small, trained, weights
from velodrome.errors import InputError
from velodrome.training.run import checkpoint
from velodrome.training.run.session import make_session
from velodrome.training.run.train_folder import held_folder
from velodrome.training.trained.loading import find_run, kept_weights, load_trained

EVALUATED = {"evaluator__evaluate_local": True, "evaluator__epoch_interval": 1}


def evaluations(folder: Path) -> dict[int, float]:
    return {line["step"]: line["evaluation"]["mean_return"] for line in metrics(folder) if "evaluation" in line}


def kept(folder: Path) -> dict[str, tuple[int, float | None]]:
    """Step and mean return of everything that can be asked for by name."""
    return {
        name: (one.step, one.evaluation and one.evaluation["mean_return"])
        for one in kept_weights(folder)
        for name in one.names
    }


def test_the_best_weights_and_those_of_each_phases_end_are_kept(tmp_path: Path):
    folder = trained(tmp_path, **EVALUATED).folder
    returns = evaluations(folder)
    best = max(returns.values())
    first = next(step for step, mean in returns.items() if mean == best)  # of equals, the earlier
    assert kept(folder) == {
        "best": (first, best),
        "supervised": (512, returns[512]),
        "last": (1024, returns[1024]),
        "ppo": (1024, returns[1024]),
    }
    files = sorted(path.name for path in folder.glob("*.pt"))
    assert files == [f"best_{first:012d}.pt", *files[1:3], "phase_supervised_000000000512.pt"]
    for which, step in (("best", first), ("taught", 512), ("last", 1024), (1024, 1024), ("512", 512)):
        assert load_trained(folder, which).step == step
    assert same(weights(folder), load_trained(folder, "ppo").network.state_dict())
    for path in (tmp_path / "small", folder):
        assert find_run(path) == folder


# Dies in the moment before a checkpoint that would be the first to name new weights of this kind.
KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from tests.support.small_run import trained
from tests.training.test_kept_weights import unnamed
def before(event, args):
    if event != "os.rename":
        return
    to = Path(args[1])
    if to.name.startswith("checkpoint_") and unnamed(to.parent, sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(before)
trained(Path(sys.argv[2]), **dict(word.split("=") for word in sys.argv[4:]))
"""


@pytest.mark.slow
def test_a_kill_between_the_best_weights_and_the_checkpoint_leaves_what_the_checkpoint_says(tmp_path: Path):
    more = {**EVALUATED, "trainer__checkpoint_interval": 6}
    whole = trained(tmp_path / "whole", **more).folder
    folder = tmp_path / "killed" / whole.name
    words = [str(Path(__file__).parents[2]), str(tmp_path / "killed")]
    for kind in ("best", "phase"):
        command = [sys.executable, "-c", KILLED, *words, kind, *(f"{name}={value}" for name, value in more.items())]
        done = subprocess.run(command, capture_output=True, timeout=DEADLINE_S, check=False)
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        assert unnamed(folder, kind)
    said = checkpoint.read(checkpoint.checkpoints(folder)[-1])["kept"]
    assert load_trained(folder, "best").step == said["best"]["step"]
    assert "supervised" not in {name for one in kept_weights(folder) for name in one.names}
    trained(tmp_path / "killed", **more)
    assert kept(folder) == kept(whole)
    for which in ("best", "taught", "last"):
        assert same(*(load_trained(each, which).network.state_dict() for each in (folder, whole)))


def unnamed(folder: Path, kind: str) -> list[Path]:
    """Files of weights that are newer than every checkpoint."""
    newest = max((int(path.stem[-12:]) for path in checkpoint.checkpoints(folder)), default=0)
    return [path for path in folder.glob(f"{kind}_*.pt") if int(path.stem[-12:]) > newest]


def test_a_file_that_no_checkpoint_names_is_not_the_best_and_goes_with_the_next_checkpoint(tmp_path: Path):
    folder = trained(tmp_path, trainer__total_timesteps=576, **EVALUATED).folder
    said = kept(folder)
    stale = folder / checkpoint.name_of(640, "best")
    stale.write_bytes((folder / checkpoint.name_of(said["best"][0], "best")).read_bytes())
    assert kept(folder) == said
    trained(tmp_path)  # longer, and not evaluated: the best is what it was
    assert not stale.exists()
    assert kept(folder)["best"] == said["best"]


def test_the_files_of_both_checkpoints_are_kept_so_a_damaged_one_costs_no_weights(tmp_path: Path):
    with held_folder(small(tmp_path)) as folder:
        run = make_session(small(tmp_path), folder, lambda _: None)
        for run.step, mean in ((64, 1.0), (128, 2.0), (192, 3.0)):
            run.keep_best({"greedy": True, "mean_return": mean})
            run.save()
        run.close()
    assert load_trained(folder, "best").step == 192
    newest = checkpoint.checkpoints(folder)[-1]
    newest.write_bytes(b"")
    assert load_trained(folder, "best").step == 128
    assert not (folder / checkpoint.name_of(64, "best")).exists()
    with pytest.raises(InputError, match=rf"{newest.name}: damaged"):
        load_trained(folder)


def test_greedy_and_sampled_evaluations_do_not_compete(tmp_path: Path):
    folder = trained(tmp_path, trainer__total_timesteps=576, **EVALUATED).folder
    greedy = kept(folder)["best"]
    trained(tmp_path, evaluator__greedy=False, **EVALUATED)
    assert kept(folder)["best"] == greedy
    sampled = {step: mean for step, mean in evaluations(folder).items() if step > 576}
    assert kept(folder)["best_sampled"][1] == max(sampled.values())


def test_what_there_is_not_is_one_line_that_says_what_there_is(tmp_path: Path):
    folder = trained(tmp_path).folder
    other = trained(tmp_path, seed=1).folder
    for path, which, words in (
        (folder, "best", ("which=best", "not evaluated", "supervised", "last", "ppo", "512", "1024")),
        (folder, "77", ("which=77", "there are")),
        (tmp_path / "small", "last", ("which run?", folder.name, other.name)),
        (tmp_path / "smal", "last", ("no run of that name",)),
        (folder / "settings.json", "last", ("damaged",)),
        (folder / "checkpoint_000000001024.pt", "best", ("one file",)),
    ):
        with pytest.raises(InputError) as caught:
            load_trained(path, which)
        message = str(caught.value)
        assert "\n" not in message
        assert [word for word in words if word not in message] == [], message
