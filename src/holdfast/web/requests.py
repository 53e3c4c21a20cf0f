"""Requests whose JSON is read strictly, and refused with a sentence where it is wrong."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from litestar import Request

from holdfast.errors import BodyInvalid

# PostgreSQL stores no NUL, neither as text nor in jsonb.
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


class JsonRequest(Request[Any, Any, Any]):
    """A request that decodes its body into what the handler takes, without turning "1" into 1."""

    async def json(self) -> Any:
        """Return the body as the type of the handler's *data*; raises `BodyInvalid`."""
        field = getattr(self.route_handler, "parsed_data_field", None)
        return decoded(await self.body(), Any if field is None else field.annotation)


def decoded(body: bytes, wanted: Any) -> Any:
    """Return JSON as a value of the type *wanted*; raises `BodyInvalid`."""
    if _NUL.search(body):
        msg = "it holds a NUL character, which PostgreSQL cannot store"
        raise BodyInvalid(msg)
    try:
        return msgspec.json.decode(body, type=wanted)
    except msgspec.DecodeError as error:
        raise BodyInvalid(str(error)) from None
    except UnicodeDecodeError:
        msg = "it is not UTF-8"
        raise BodyInvalid(msg) from None
    except RecursionError:
        msg = "its JSON is nested too deeply"
        raise BodyInvalid(msg) from None
