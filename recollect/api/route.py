"""An endpoint of the API: of what its query says twice, one would be lost."""

from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, get_args, get_origin

from fastapi import Request, Response
from fastapi.dependencies.models import Dependant
from fastapi.routing import APIRoute

from recollect.errors import BadRequestError


class ApiRoute(APIRoute):
    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        once = frozenset(_single(self.dependant))

        async def within(request: Request) -> Response:
            given = [name for name, _ in request.query_params.multi_items() if name in once]
            for name in set(given):
                if given.count(name) > 1:
                    raise BadRequestError(f"{name}: stands in the query twice")
            return await handle(request)

        return within


def _single(dependant: Dependant) -> Iterator[str]:
    """Names of a query that stand for one value, not for a list."""
    for field in dependant.query_params:
        if not _is_list(field.field_info.annotation):
            yield field.alias
    for part in dependant.dependencies:
        yield from _single(part)


def _is_list(annotation: object) -> bool:
    origin = get_origin(annotation)
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return True
    return any(_is_list(one) for one in get_args(annotation))
