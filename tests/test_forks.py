"""A process that something forked and that outlives us holds neither our locks nor our workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from velodrome.errors import InputError
from velodrome.records.appender import Appender
from velodrome.timing.profiles import Profiles
from velodrome.training.run.train_folder import held

KILLED = """
import os, signal, sys
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path

from velodrome.forks import keep_alone
from velodrome.records.appender import Appender
from velodrome.timing.profiles import Profiles
from velodrome.training.run.train_folder import held

place = Path(sys.argv[1])
appender = Appender(place / "x.jsonl")
keep_alone(int(sys.argv[2]))
with ExitStack() as stack:
    stack.enter_context(held(place / "run"))
    stack.enter_context(Profiles(place, "server").claimed())
    pool = ProcessPoolExecutor(1, mp_context=get_context("fork"))
    print(pool.submit(os.getpid).result(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_pool_that_outlives_a_killed_process_holds_no_lock_and_no_pipe_of_it(tmp_path: Path):
    reader, writer = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path), str(writer)], stdout=subprocess.PIPE, pass_fds=[writer]
    ) as process:
        assert process.stdout is not None
        orphan = int(process.stdout.readline())
        os.close(writer)
        try:
            process.wait()
            os.kill(orphan, 0)  # it is there
            Appender(tmp_path / "x.jsonl").close()
            with held(tmp_path / "run"), Profiles(tmp_path, "server").claimed():
                assert os.read(reader, 1) == b""
        finally:
            os.kill(orphan, 9)
            os.close(reader)


def test_a_refusal_names_the_process_that_holds_the_lock(tmp_path: Path):
    holder = f" (process {os.getpid()})" if sys.platform == "linux" else ""
    first = Appender(tmp_path / "x.jsonl")
    with pytest.raises(InputError) as refused:
        Appender(tmp_path / "x.jsonl")
    assert f"x.jsonl: another collection is writing to it{holder}; wait for it, or give" in str(refused.value)
    first.close()
    with held(tmp_path / "run"), pytest.raises(InputError) as refused, held(tmp_path / "run"):
        pass
    assert f"another process trains this run{holder}; give run=" in str(refused.value)
