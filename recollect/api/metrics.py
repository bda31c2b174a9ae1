"""GET /metrics: what the service counts, as Prometheus reads it."""

import platform
import secrets
from collections import defaultdict, deque
from collections.abc import Iterable
from math import ceil

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector
from starlette.datastructures import Headers

from recollect import __version__
from recollect.api.deps import ApiRoute, CurrentApp
from recollect.app import App
from recollect.errors import PermissionDeniedError
from recollect.model import Key, Scope
from recollect.orgs import orgs
from recollect.telemetry import metrics
from recollect.telemetry.metrics import BUCKETS, METRICS, Sample
from recollect.worker import maintenance

router = APIRouter(route_class=ApiRoute)
PATH = "/metrics"
REQUESTS = "recollect_http_request_seconds"
SEARCHES = frozenset({"/v3/search", "/v4/search", "/ns/{namespace}/search"})
LAST = 1_000
"""searches whose times are kept"""
METHODS = frozenset({"GET", "POST", "PATCH", "DELETE", "PUT", "HEAD", "OPTIONS"})


class Requests:
    """How long requests took, in this process. Routes are templates: paths are unbounded, and
    name what people have."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        about = METRICS[REQUESTS]
        self._seconds = Histogram(
            REQUESTS, about.about, about.labels, buckets=BUCKETS, registry=self.registry
        )
        self._searches = deque[float](maxlen=LAST)

    def count(self, method: str, route: str | None, status: int | None, seconds: float) -> None:
        """`route` None: there is none; `status` None: it broke off before an answer."""
        known = method if method in METHODS else "other"
        self._seconds.labels(known, route or "none", str(status or 0)).observe(seconds)
        if route in SEARCHES and status == 200:
            self._searches.append(seconds)

    def searches(self) -> tuple[int, float, float] | None:
        """The number of the last searches, and the milliseconds within which half of them, and 95
        of 100, were answered; None before the first search."""
        took = sorted(self._searches)
        if not took:
            return None
        half, most = (took[ceil(len(took) * share) - 1] * 1000 for share in (0.5, 0.95))
        return len(took), half, most


class _Stored(Collector):
    """What the database knows."""

    def __init__(self, samples: Iterable[Sample]) -> None:
        self._samples = list(samples)

    def collect(self) -> Iterable[Family]:
        by_metric = defaultdict[str, list[Sample]](list)
        for sample in self._samples:
            if sample.metric in METRICS:  # a name of an earlier release may be stored still
                by_metric[sample.metric].append(sample)
        for name, samples in by_metric.items():
            about = METRICS[name]
            # The library adds the suffix of a counter itself.
            family = Family(name.removesuffix("_total"), about.about, about.kind)
            for sample in sorted(samples, key=_order):
                family.add_sample(sample.name, dict(sample.labels), sample.value)
            yield family


def _order(sample: Sample) -> tuple[object, ...]:
    """Buckets of one histogram together, the smallest first."""
    labels = dict(sample.labels)
    bound = float(labels.pop("le", "inf").replace("+Inf", "inf"))
    return (tuple(sorted(labels.items())), sample.name, bound)


def opens(app: App, headers: Headers) -> bool:
    """Whether a request brings the token of the settings."""
    token = app.config.metrics_token
    given = headers.get("authorization", "").removeprefix("Bearer ")
    return bool(token) and secrets.compare_digest(
        given.encode(errors="replace"), token.get_secret_value().encode()
    )


@router.get(PATH, include_in_schema=False)
def show(request: Request, app: CurrentApp) -> Response:
    """For the operator: it covers all organisations together."""
    key: Key | None = request.scope["state"].get("key")  # without one, the edge saw the token
    if key is not None and not _is_operators(key):
        raise PermissionDeniedError(
            "Forbidden",
            "/metrics takes RECOLLECT_METRICS_TOKEN, or an admin key of the default organisation",
        )
    info = {"version": __version__, "python": platform.python_version()}
    maintenance.flush(app)  # what this process counted of searches
    with app.db.begin() as tx:
        samples = metrics.look(tx)
    build = Sample("recollect_build_info", "recollect_build_info", tuple(info.items()), 1)
    stored = CollectorRegistry()
    stored.register(_Stored([build, *samples, *metrics.of_replicas(app.db.replicas())]))
    requests: Requests = request.app.state.requests
    body = generate_latest(stored) + generate_latest(requests.registry)
    return Response(body, media_type=CONTENT_TYPE_LATEST)


def _is_operators(key: Key) -> bool:
    return key.org.name == orgs.DEFAULT and key.scope is Scope.ADMIN and key.tags is None
