"""Films of episodes: one frame per step, of the size that was drawn, with the colours of the world."""

from __future__ import annotations

import sys
from pathlib import Path

import av
import gymnasium
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from small_run import Reference, trained
from test_episodes import Lamp

import velodrome
from velodrome.errors import InputError
from velodrome.training.envs.make import make_env
from velodrome.training.trained.videos import Video, drawn


def frames_of(path: str | Path) -> list[np.ndarray]:
    with av.open(str(path)) as container:
        return [frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)]


def test_a_film_has_a_frame_for_every_step_and_shows_the_world(tmp_path: Path, reference: Reference):
    policy = velodrome.load_policy(reference("mlp").folder)
    films = policy.film(tmp_path / "films", episodes=2, fps=10)
    returns = [one["return"] for one in films]
    assert np.mean(returns) == policy.evaluate(episodes=2)["mean_return"]
    for one in films:
        frames = frames_of(one["file"])
        assert len(frames) == one["length"] == 24
        assert {frame.shape for frame in frames} == {(480, 480, 3)}
        assert np.ptp(frames[0].astype(int)) > 50  # not one colour
    assert sorted(path.suffix for path in (tmp_path / "films").iterdir()) == [".mp4", ".mp4"]


def test_letters_are_drawn_in_their_colours_and_the_film_keeps_them(tmp_path: Path, reference: Reference):
    env = make_env(velodrome.load_policy(reference("mlp").folder).settings.env, 3)
    picture = drawn(env, 1)
    size = 480 // 10
    for row, letters in enumerate(env.letters(1)):
        for column, letter in enumerate(letters.tobytes().decode()):
            wanted = tuple(bytes.fromhex(env.palette[letter][1:]))
            assert tuple(picture[row * size + size // 2, column * size + size // 2]) == wanted
    with Video(tmp_path / "x.mp4", 10) as film:
        film.add(picture)
    shown = frames_of(tmp_path / "x.mp4")[0].astype(int)
    middle = slice(size // 2, None, size)
    assert np.abs(shown[middle, middle] - picture[middle, middle]).max() < 40  # what the encoder costs


def test_an_environment_that_draws_itself_is_filmed_as_it_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(gymnasium.registry, "Lamp-v0", EnvSpec("Lamp-v0", Lamp))
    more = {"env__name": "gymnasium:Lamp-v0", "supervised__steps": 0, "trainer__total_timesteps": 64}
    policy = velodrome.load_policy(trained(tmp_path, **more).folder)
    (one,) = policy.film(tmp_path)
    frames = frames_of(one["file"])
    assert (len(frames), one["length"], frames[0].shape) == (12, 12, (300, 900, 3))
    for at, frame in enumerate(frames):
        lit = np.flatnonzero(frame[150, :, 0] > 128)
        assert abs(lit.min() - 60 * at) <= 2  # where the lamp is in that step


def test_a_vector_environment_of_gymnasiums_is_filmed_as_it_draws_itself(tmp_path: Path):
    more = {"env__name": "gymnasium:CartPole-v1", "supervised__steps": 0, "trainer__total_timesteps": 64}
    policy = velodrome.load_policy(trained(tmp_path, **more).folder)
    films = policy.film(tmp_path, 2)
    for one in films:
        frames = frames_of(one["file"])
        assert (len(frames), frames[0].shape) == (one["length"], (400, 600, 3))
        assert not np.array_equal(frames[0], frames[-1])


def test_an_odd_picture_gets_one_more_row_and_column_and_a_failure_leaves_no_file(tmp_path: Path):
    picture = np.arange(15 * 21 * 3, dtype=np.uint8).reshape(15, 21, 3)
    with Video(tmp_path / "odd.mp4", 5) as film:
        film.add(picture)
    assert frames_of(tmp_path / "odd.mp4")[0].shape == (16, 22, 3)

    def fail() -> None:
        with Video(tmp_path / "bad.mp4", 5) as film:
            film.add(picture)
            raise InputError("stopped")

    with pytest.raises(InputError, match="stopped"):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["odd.mp4"]


def test_without_the_library_one_line_names_the_extra(
    tmp_path: Path, reference: Reference, monkeypatch: pytest.MonkeyPatch
):
    policy = velodrome.load_policy(reference("mlp").folder)
    for name in ("av", "onnxruntime"):
        monkeypatch.setitem(sys.modules, name, None)  # as if it were not installed
    with pytest.raises(InputError, match=r"av.*velodrome\[video\]"):
        policy.film(tmp_path)
    with pytest.raises(InputError, match=r"onnxruntime.*velodrome\[onnx\]"):
        policy.export(tmp_path / "x.onnx")
    assert list(tmp_path.iterdir()) == []


def test_a_picture_that_no_film_can_have_is_one_line_and_leaves_no_file(tmp_path: Path):
    with (
        pytest.raises(InputError, match=r"^[^\n]*x\.mp4: H\.264 has no pictures of 20000 x 2$"),
        Video(tmp_path / "x.mp4", 5) as film,
    ):
        film.add(np.zeros((2, 20_000, 3), np.uint8))
    assert list(tmp_path.iterdir()) == []
