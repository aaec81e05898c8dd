"""Numbers for Prometheus: `prometheus_client`, with labels that cannot fill the memory and several processes as one.

A label never has more than `MOST_VALUES` values: later ones are counted under "other", because a caller or a model may
make names up. Imported only by what is scraped.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, Summary, generate_latest
from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.metrics import MetricWrapperBase
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector

__all__ = ["Bounded", "Counter", "Gauge", "Histogram", "Metric", "Summary"]

PATH = "/metrics"
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
MOST_VALUES = 100
OTHER = "other"
DURATIONS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
LAGS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

_LONGEST_VALUE = 200
_M = TypeVar("_M", bound=MetricWrapperBase)


class Bounded(Generic[_M]):
    """A metric with labels, whose children are looked up once and whose label values are bounded."""

    def __init__(self, metric: _M, *, most: int = MOST_VALUES) -> None:
        self._metric = metric
        self._most = most
        self._children: dict[tuple[str, ...], _M] = {}
        self._values: dict[int, set[str]] = {}

    def at(self, *values: str) -> _M:
        """The child for these label values; a value too many, too long or not encodable is "other"."""
        child = self._children.get(values)
        if child is None:
            admitted = tuple(self._admitted(place, value) for place, value in enumerate(values))
            child = self._children.get(admitted)
            if child is None:
                child = self._children[admitted] = self._metric.labels(*admitted)
        return child

    def _admitted(self, place: int, value: str) -> str:
        known = self._values.setdefault(place, set())
        if value not in known and value != OTHER:
            if len(known) >= self._most or len(value) > _LONGEST_VALUE or not _encodable(value):
                return OTHER
            known.add(value)
        return value


class _CpuTime(Collector):
    """What is known of a process without /proc."""

    def collect(self) -> Iterator[Metric]:
        yield CounterMetricFamily("process_cpu_seconds", "Total CPU time in seconds.", time.process_time())


class _Families(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def make_registry() -> CollectorRegistry:
    """A registry of one's own, with the metrics of this process in it."""
    registry = CollectorRegistry()
    process = ProcessCollector(registry=None)
    registry.register(process if list(process.collect()) else _CpuTime())
    return registry


def families(registry: CollectorRegistry) -> list[Metric]:
    """Everything in a registry, without the `_created` series that OpenMetrics adds."""
    return [_copy(family) for family in registry.collect()]


def parsed(text: str) -> list[Metric]:
    """The families in a text that `render` made. Raises ValueError if it is another text."""
    return list(text_string_to_metric_families(text))


def labelled(group: Iterable[Metric], **labels: str) -> list[Metric]:
    """The same families, each sample with more labels."""
    return [_copy(family, labels) for family in group]


def merged(groups: Iterable[Iterable[Metric]]) -> list[Metric]:
    """Families of one name become one."""
    result: dict[str, Metric] = {}
    for group in groups:
        for family in group:
            result.setdefault(family.name, Metric(family.name, family.documentation, family.type)).samples.extend(
                family.samples
            )
    return list(result.values())


def render(group: Iterable[Metric]) -> bytes:
    """The text that Prometheus reads."""
    return generate_latest(_Families(group))


def _copy(family: Metric, labels: dict[str, str] | None = None) -> Metric:
    result = Metric(family.name, family.documentation, family.type)
    result.samples = [
        sample._replace(labels={**(labels or {}), **sample.labels})
        for sample in family.samples
        if not sample.name.endswith("_created")
    ]
    return result


def _encodable(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True
