"""The handler of each address. Handlers are plain functions, so each request has its own thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from velodrome.errors import InputError
from velodrome.viewer.judging import Judging
from velodrome.viewer.pages.compare_page import compare_page
from velodrome.viewer.pages.failures_page import failures_page
from velodrome.viewer.pages.frame import render_page
from velodrome.viewer.pages.links import Address, Links, long
from velodrome.viewer.pages.pair_page import pair_of_task, pair_page
from velodrome.viewer.pages.rollout_files import curl, trace
from velodrome.viewer.pages.rollout_page import rollout_page
from velodrome.viewer.pages.rollouts_page import rollouts_page
from velodrome.viewer.pages.run_page import run_page
from velodrome.viewer.pages.runs_page import runs_page
from velodrome.viewer.pages.several_page import MOST_RUNS, several_page
from velodrome.viewer.pages.task_page import task_page
from velodrome.viewer.pages.tasks_page import tasks_page
from velodrome.viewer.pages.training_page import curves_page, training_page
from velodrome.viewer.parts.dialogue import pretty
from velodrome.viewer.runs.known_runs import KnownRun, KnownRuns
from velodrome.viewer.transcript import transcript
from velodrome.viewer.viewed_file import ViewedFile

Json = dict[str, Any]

MakePage = Callable[[ViewedFile, Links, Address], dict[str, Any]]

RUN_PAGES: dict[str, tuple[str, MakePage]] = {  # by the name of the template: the address below the run's, the page
    "run": ("", run_page),
    "rollouts": ("/rollouts", rollouts_page),
    "rollout": ("/rollout/{name}", rollout_page),
    "tasks": ("/tasks", tasks_page),
    "task": ("/task", task_page),
    "failures": ("/failures", failures_page),
}

ROLLOUT_FILES: dict[
    str, tuple[str, Callable[[dict[str, Any]], str | bytes]]
] = {  # by ending: the type, the row as text
    "json": ("application/json", pretty),
    "txt": ("text/plain", transcript),
    "sh": ("text/plain", curl),
    "trace": ("application/json", trace),
}

_TEXTS = [field.name for field in fields(Address) if field.type == "str"]


class Handlers:
    """The handlers over all runs."""

    def __init__(self, runs: KnownRuns, judging: Judging) -> None:
        self._runs = runs
        self._judging = judging

    def routes(self) -> list[Route]:
        """Every address of the viewer except its own files."""
        handlers: dict[str, Callable[[Request], Response]] = {
            "/": self.home,
            "/compare": self.compare,
            "/pair": self.pair,
            "/pulse": self.pulse,
            "/training/{slug}": self.training,
            "/run/{slug}/pulse": lambda request: self._pulse([self._runs.named(request.path_params["slug"])]),
            "/run/{slug}/key/{key:path}": self.key,
            **{f"/run/{{slug}}/rollout/{{name}}.{form}": partial(self.rollout_file, form) for form in ROLLOUT_FILES},
            **{f"/run/{{slug}}{path}": partial(self.run_page, name) for name, (path, _) in RUN_PAGES.items()},
        }
        return [*self._judging.routes(), *(Route(path, handler) for path, handler in handlers.items())]

    def home(self, request: Request) -> Response:
        """The list of runs; with one run, that run's page."""
        runs = self._runs.all()
        only = runs if len(runs) == 1 else [run for run in runs if run.found.path in self._given_folder()]
        if len(only) == 1 and not request.query_params:
            return RedirectResponse(address_of(only[0]))
        query = request.query_params
        frame: Json = {"version": self._runs.version(), "pulse": Links("").pulse()}
        values = runs_page(self._runs, query.getlist("run"), address_in(request))
        return HTMLResponse(render_page("runs.html", "runs", Links(""), **frame, **values))

    def _given_folder(self) -> set[Any]:
        """The folder on the command line, if it is the only path there."""
        folders = self._runs.folders
        return {folders[0].path} if len(folders) == 1 and not self._runs.given else set()

    def compare(self, request: Request) -> Response:
        """A comparison of two runs or more."""
        query = request.query_params
        slugs = list(dict.fromkeys(filter(None, [query.get("a"), query.get("b"), *query.getlist("run")])))
        chosen = [self._runs.named(slug) for slug in slugs] or self._runs.all()[:1]
        kinds = {run.found.kind for run in chosen}
        if len(kinds) > 1:
            raise InputError("Rollouts and training runs cannot be compared; pick runs of one kind.")
        others = [run for run in self._runs.all() if run.found.kind in kinds and run not in chosen]
        if len(chosen) == 1 and (len(others) == 1 or "a" in query or not slugs):
            chosen += others[:1]
        if len(chosen) == 1 and others:
            return RedirectResponse(Links("").runs(run=slugs))
        if len(chosen) < 2:
            raise InputError("Two runs are needed: velo view a.jsonl b.jsonl, or a folder with several runs")
        if len(chosen) > MOST_RUNS:
            raise InputError(f"{len(chosen)} runs are too many to compare at once; pick up to {MOST_RUNS}.")
        frame = self._frame(chosen)
        if kinds == {"training"}:
            values = curves_page([self._runs.training(run.slug) for run in chosen])
            return HTMLResponse(render_page("curves.html", "compare", Links(""), **frame, **values))
        files = [self._runs.file(run.slug) for run in chosen]
        if len(files) > 2:
            values = several_page(files, address_in(request))
            return HTMLResponse(render_page("several.html", "compare", Links(""), **frame, **values))
        a, b = files
        values = compare_page([run for run in self._runs.all() if run.found.kind in kinds], a, b, address_in(request))
        return HTMLResponse(render_page("compare.html", "compare", Links(files[1].slug), **frame, **values))

    def pair(self, request: Request) -> Response:
        """Two rollouts side by side; without their numbers, two of a task, chosen by `pair_of_task`."""
        query = request.query_params
        sides = [self._side(query.get(side, "")) for side in ("a", "b")]
        (a, a_number), (b, b_number) = sides
        if a_number is None or b_number is None:
            return RedirectResponse(pair_of_task(a, b, query.get("task", ""), a_number, b_number))
        runs = [self._runs.named(source.slug) for source in dict.fromkeys((a, b))]
        values = pair_page((a, a_number), (b, b_number))
        return HTMLResponse(render_page("pair.html", "pair", Links(b.slug), **self._frame(runs, b), **values))

    def _side(self, text: str) -> tuple[ViewedFile, int | None]:
        """The file and the number of the rollout in `run:number`, or in `run`."""
        slug, colon, name = text.rpartition(":")
        number = long(name) if colon else None
        if colon and number is None:
            raise InputError(f"{text!r:.100} is not a run and the number of a rollout, as in baseline:17.")
        return self._runs.file(slug if colon else name), number

    def training(self, request: Request) -> Response:
        """A training run."""
        run = self._runs.training(request.path_params["slug"])
        frame = self._frame([self._runs.named(run.slug)])
        values = training_page(run, self._runs)
        return HTMLResponse(render_page("training.html", "training", Links(""), **frame, **values))

    def run_page(self, name: str, request: Request) -> Response:
        """A page about one run."""
        run = self._runs.named(request.path_params["slug"])
        if run.found.kind == "training" and name == "run":
            return RedirectResponse(address_of(run))
        source, (_, make) = self._runs.file(run.slug), RUN_PAGES[name]
        address = address_in(request)
        links, frame = Links(source.slug, cols=address.cols), self._frame([run], source)
        values = make(source, links, address)
        if name == "rollout":
            values["judging"] = self._judging.form(request, source, values["entry"])
        return HTMLResponse(render_page(f"{name}.html", name, links, **frame, **values))

    def rollout_file(self, form: str, request: Request) -> Response:
        """A rollout as a file."""
        kind, make = ROLLOUT_FILES[form]
        row = self._source(request).index().row(address_in(request).number)
        return Response(make(row), media_type=kind)

    def key(self, request: Request) -> Response:
        """Redirect to the rollout with this key."""
        source, key = self._source(request), request.path_params["key"]
        number = source.index().find(key)
        if number is None:
            raise InputError(f"{source.name} has no rollout with the key {key!r:.100}.")
        return RedirectResponse(Links(source.slug).rollout(number))

    def pulse(self, request: Request) -> Response:
        """The version of the list of runs, or of a page about some of them: a page polls it for changes."""
        slugs = request.query_params.getlist("run")
        return self._pulse([self._runs.named(slug) for slug in slugs] if slugs else None)

    def _pulse(self, runs: Sequence[KnownRun] | None) -> Response:
        version = self._runs.version(runs)
        summaries = [self._runs.summary(run) for run in (self._runs.all() if runs is None else runs)]
        slugs = None if runs is None else {run.slug for run in runs}
        states = [each.state for each in self._runs.opened if slugs is None or each.slug in slugs]
        values = {
            "version": version,
            "live": any(summary.live for summary in summaries) or any(state.live for state in states),
            "rows": sum(state.rows for state in states),
            "failed": sum(state.failed for state in states),
            "complete": all(state.complete for state in states),
        }
        return Response(orjson.dumps(values), media_type="application/json")

    def _source(self, request: Request) -> ViewedFile:
        return self._runs.file(request.path_params["slug"])

    def _frame(self, runs: Sequence[KnownRun], source: ViewedFile | None = None) -> Json:
        """The frame of a page about some runs. It is made before the page, so that later changes have a new version."""
        slugs = [run.slug for run in runs]
        pulse = Links(source.slug).pulse() if source is not None and len(slugs) == 1 else Links("").pulse(slugs)
        several = len(self._runs.all()) > 1
        return {"source": source, "several": several, "version": self._runs.version(runs), "pulse": pulse}


def address_of(run: KnownRun) -> str:
    """The page of a run."""
    address: str = Links(run.slug).training() if run.found.kind == "training" else Links(run.slug).run()
    return address


def address_in(request: Request) -> Address:
    """The parts of an address. An offset that is not a number means the start of the list."""
    query, name = request.query_params, request.path_params.get("name")
    texts = {each: query.get(each, "") for each in _TEXTS}
    texts["cols"] = ",".join(filter(None, query.getlist("cols")))  # a form sends one value per column
    since = query.get("since", "")
    number = 0 if name is None else long(name)
    if number is None:
        raise InputError(f"{name!r:.60} is not the number of a rollout.")
    offset = int(since) if since.isascii() and since.isdecimal() and len(since) < 10 else 0
    return Address(**texts, since=offset, number=number)
