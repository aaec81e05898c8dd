"""The pages about one run. A new page is a function in `pages/`, a template of the same name, and a line here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from velodrome.viewer.pages.failures_page import failures_page
from velodrome.viewer.pages.links import Address, Links
from velodrome.viewer.pages.rollout_files import curl, markdown, trace
from velodrome.viewer.pages.rollout_page import rollout_page
from velodrome.viewer.pages.rollouts_page import rollouts_page
from velodrome.viewer.pages.run_page import run_page
from velodrome.viewer.pages.task_page import task_page
from velodrome.viewer.pages.tasks_page import tasks_page
from velodrome.viewer.parts.dialogue import pretty
from velodrome.viewer.viewed_file import ViewedFile

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
    "md": ("text/markdown", markdown),
    "sh": ("text/plain", curl),
    "trace": ("application/json", trace),
}
