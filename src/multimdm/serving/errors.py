"""Errors as clients of this API expect them: {"error": {"message", "type", "param", "code"}}."""

from itertools import takewhile
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from multimdm._inert import inert
from multimdm.samplers.settings import BROKEN

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
_LONGEST_VALUE = 60
_LONGEST_MESSAGE = 1000
"""Characters; a request may hold names of any length."""


class ApiError(Exception):
    """What is wrong with a request, or why it cannot be served now."""

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code, self.headers = status, message, param, code, headers

    def as_data(self) -> dict[str, Any]:
        """The body of the answer. Clients print it, so what a request held is written out and bounded."""
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        message = _without_middle(inert(self.message), _LONGEST_MESSAGE)
        param = None if self.param is None else _without_middle(inert(self.param), _LONGEST_VALUE)
        return {"error": {"message": message, "type": kind, "param": param, "code": self.code}}

    def as_response(self) -> JSONResponse:
        """The error as a response."""
        return JSONResponse(self.as_data(), self.status, self.headers)


def install_error_handlers(app: FastAPI) -> None:
    """All errors in one form."""

    async def api_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, ApiError)
        return error.as_response()

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        return _of_validation(error).as_response()

    async def http_error(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        headers = dict(error.headers) if error.headers else None
        if error.status_code == 404:
            return _no_such_path(request).as_response()
        message = str(error.detail)
        if error.status_code == 405:
            allowed = (headers or {}).get("Allow", "another method")
            message = f"{_short(request.url.path)} takes {allowed}; got {request.method}"
        return ApiError(error.status_code, message, headers=headers).as_response()

    app.add_exception_handler(ApiError, api_error)
    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, http_error)


def _no_such_path(request: Request) -> ApiError:
    """What there is instead: OpenAI has many more paths than this server."""
    others = "/v1/completions, /v1/chat/completions, /v1/models and /v1/trace; /docs describes them"
    return ApiError(404, f"there is no {request.method} {_short(request.url.path)} here; there are {others}")


def _of_validation(error: RequestValidationError) -> ApiError:
    """The first complaint, by the name of its field."""
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        return ApiError(400, f"the body must be JSON; {first['ctx']['error']} at character {first['loc'][-1]}")
    # Where a field may be of several types, the place ends with a description of one, which is of no use to clients.
    place = [str(part) for part in takewhile(lambda part: "[" not in str(part), first["loc"][1:])]
    if first["type"] == BROKEN:
        return ApiError(400, first["msg"], place[0])
    got = "" if first["type"] == "missing" else f"; got {_value(first['input'])}"
    return ApiError(400, f"{'.'.join(place) or 'body'}: {first['msg']}{got}", place[0] if place else None)


def _value(value: Any) -> str:
    return _short(repr(value) if isinstance(value, int | float | str | None) else f"a {type(value).__name__}")


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}…"


def _without_middle(text: str, most: int) -> str:
    """The beginning, which names the field, and the end, which has the remedy."""
    return text if len(text) <= most else f"{text[: most // 2]}…{text[-most // 2 :]}"
