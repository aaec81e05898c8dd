"""How many workers one driver feeds: arithmetic with measured costs, checked against Ray clusters on this machine.

    python -m benchmarks.capacity --driver-ms 0.15 --worker-ms 0.4 [--check]

A rollout costs the driver some CPU (plan, send, receive, write, count) and a worker some more; the rest is waiting for
the model. Predictions of a verdict rest on the same arithmetic (`profiling/prediction.py`). `--check` runs the same
on clusters of two and four nodes, with a model that waits.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import orjson

from benchmarks.commands import VELO
from benchmarks.summary import Json, table
from velodrome.profiling.prediction import Capacity, Demand, run_time
from velodrome.profiling.stages import HERE

LATENCIES_S = (1.0, 10.0, 60.0, 300.0)  # of a rollout: waiting for the model
PER_WORKER = (16, 64, 256)  # rollouts in flight
NODES = (2, 4)
CHECKED = (0.5, 8)  # the model's time per rollout, rollouts in flight per node
WORKER = "worker"
_MOST_WORKERS = 1 << 16


def rate(workers: int, in_flight: int, latency_s: float, driver_s: float, worker_s: float) -> float:
    """Rollouts per second of so many workers, each with so many in flight."""
    demand = Demand(driver_s + latency_s + worker_s, cpu_s={HERE: driver_s, WORKER: worker_s})
    slots = workers * in_flight
    count = 20 * slots
    return count / run_time(demand, Capacity(slots, processes={WORKER: workers}), count)[0]


def most_workers(in_flight: int, latency_s: float, driver_s: float, worker_s: float) -> int:
    """As many workers, in powers of two, as keep one driver at most half busy: the rest is for uneven arrival."""
    workers = 1
    while workers < _MOST_WORKERS and rate(2 * workers, in_flight, latency_s, driver_s, worker_s) <= 0.5 / driver_s:
        workers *= 2
    return workers


def paper(driver_s: float, worker_s: float) -> list[list[str]]:
    """Where one driver saturates."""
    rows = []
    for latency_s in LATENCIES_S:
        for in_flight in PER_WORKER:
            workers = most_workers(in_flight, latency_s, driver_s, worker_s)
            per_s = rate(workers, in_flight, latency_s, driver_s, worker_s)
            drivers = max(-(-10_000 // workers), 1)
            rows.append([f"{latency_s:g}", f"{in_flight}", f"{workers:,}", f"{per_s:,.0f}", f"{drivers:,}"])
    return rows


def really(nodes: int) -> float:
    """Rollouts per second of a cluster of so many nodes on this machine."""
    from tests.support.ray_nodes import ray_nodes

    latency_s, in_flight = CHECKED
    with tempfile.TemporaryDirectory() as folder, ray_nodes() as cluster:
        for _ in range(nodes):
            cluster.add()
        place = Path(folder)
        model = {"scripted_model": {"answers": ["It is 36"], "latency_s": latency_s}}
        (place / "model.yaml").write_text(json.dumps({"policy_model": {"responses_api_models": model}}))
        count = 20 * nodes * in_flight
        tasks = [
            {"id": str(n), "expected_answer": "36", "responses_create_params": {"input": "?"}} for n in range(count)
        ]
        (place / "tasks.jsonl").write_bytes(b"".join(orjson.dumps(task) + b"\n" for task in tasks))
        command = (
            f'{VELO} collect "+config_paths=[resources_servers/calculator/configs/calculator.yaml,model.yaml]"'
            f" +embedded=true +input_jsonl_fpath=tasks.jsonl +output_jsonl_fpath=r.jsonl +executor=ray"
            f" +ray_address={cluster.address} +ray_actors={nodes} +num_samples_in_parallel={nodes * in_flight}"
        )
        done = subprocess.run(command, shell=True, cwd=place, env=cluster.environ, capture_output=True, check=False)
        if done.returncode:
            raise SystemExit(done.stderr.decode()[-4000:])
        metrics: Json = orjson.loads(done.stdout)
    per_s: float = metrics["throughput/samples_per_s"]
    return per_s


def main() -> int:
    """Print the table, and what clusters here do beside it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--driver-ms", type=float, required=True, help="CPU of the driver per rollout")
    parser.add_argument("--worker-ms", type=float, required=True, help="CPU of a worker per rollout")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    driver_s, worker_s = args.driver_ms / 1e3, args.worker_ms / 1e3
    head = ["model s per rollout", "in flight per worker", "workers of one driver", "rollouts/s", "drivers for 10,000"]
    print(table(head, paper(driver_s, worker_s)))
    if not args.check:
        return 0
    missed, rows = 0, []
    for nodes in NODES:
        predicted = rate(nodes, CHECKED[1], CHECKED[0], driver_s, worker_s)
        measured = really(nodes)
        missed += not 0.85 < measured / predicted < 1.15
        rows.append([f"{nodes}", f"{predicted:.1f}", f"{measured:.1f}", f"{measured / predicted:.2f}"])
    print()
    print(table(["Ray nodes", "predicted /s", "measured /s", "ratio"], rows))
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
