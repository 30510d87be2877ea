"""The application: routes, guards, the engine's life."""

import asyncio
import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any

from fastapi import APIRouter, FastAPI, Response
from starlette.middleware.cors import CORSMiddleware

import multimdm
from multimdm.serving.api_page import api_page, describe
from multimdm.serving.catalog import ServedModel
from multimdm.serving.completions import completion_routes
from multimdm.serving.engine import Engine
from multimdm.serving.errors import ApiError, install_error_handlers
from multimdm.serving.guard import Guard
from multimdm.serving.limits import Limits
from multimdm.serving.metrics import CONTENT_TYPE, Metrics
from multimdm.serving.service import Service
from multimdm.serving.traces import trace_routes

_PAGE = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/docs.css": ("docs.css", "text/css; charset=utf-8"),
    "/playground.css": ("playground.css", "text/css; charset=utf-8"),
    "/playground.js": ("playground.js", "text/javascript; charset=utf-8"),
    "/address.js": ("address.js", "text/javascript; charset=utf-8"),
    "/grid.js": ("grid.js", "text/javascript; charset=utf-8"),
    "/inspector.js": ("inspector.js", "text/javascript; charset=utf-8"),
    "/trace.js": ("trace.js", "text/javascript; charset=utf-8"),
    "/icon.svg": ("icon.svg", "image/svg+xml"),
}
"""Address -> file: all there is. They are read when the server starts, and no request names a file."""


def create_app(
    served_models: dict[str, ServedModel],
    limits: Limits | None = None,
    api_key: str | None = None,
    hosts: Collection[str] = ("*",),
    origins: Collection[str] = (),
) -> FastAPI:
    """The server of these models.

    `hosts` are the names under which it may be addressed, `origins` the sites whose pages may.
    """
    limits, metrics = limits or Limits(), Metrics()
    service = Service(served_models, limits, metrics, Engine(limits, metrics))
    metrics.info("multimdm_build_info", "The version that runs.", [{"version": multimdm.__version__}])
    sizes = {served.name: str(served.card["network"]["parameters"]) for served in served_models.values()}
    models = [{"model": name, "parameters": size} for name, size in sizes.items()]
    metrics.info("multimdm_model_info", "What is served.", models)

    @asynccontextmanager
    async def life(app: FastAPI) -> AsyncIterator[None]:
        service.engine.start()
        try:
            yield
        finally:
            # In another thread: who runs out of grace is cancelled here, and the engine learns it from here.
            await asyncio.to_thread(service.engine.close)

    app = FastAPI(title="multimdm", version=multimdm.__version__, lifespan=life, openapi_url=None)
    app.state.service = service
    install_error_handlers(app)
    for routes in (completion_routes(service), trace_routes(service), _status_routes(service), _page_routes()):
        app.include_router(routes)
    description = describe(app)
    app.include_router(_description_routes(description))
    public = {*_PAGE, "/healthz", "/docs", "/openapi.json"}
    app.add_middleware(Guard, limits=limits, metrics=metrics, api_key=api_key, public=public, hosts=hosts)
    if origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
            expose_headers=["Retry-After"],
        )
    return app


def _status_routes(service: Service) -> APIRouter:
    routes = APIRouter()

    @routes.get("/v1/models")
    async def models() -> dict:
        """What is served, the first first."""
        return {"object": "list", "data": [served.as_data(service.limits) for served in service.served_models.values()]}

    @routes.get("/v1/models/{name}")
    async def model(name: str) -> dict:
        """One of them."""
        return service.served(name).as_data(service.limits)

    @routes.get("/healthz")
    async def healthz() -> dict:
        """Whether the server lives, the thread that computes included."""
        if not service.engine.alive:
            raise ApiError(503, "the engine has stopped; restart the server")
        return {"status": "ok"}

    @routes.get("/metrics")
    async def metrics() -> Response:
        """Counts, for Prometheus."""
        return Response(service.metrics.render(), media_type=CONTENT_TYPE)

    return routes


def _page_routes() -> APIRouter:
    """The routes of the playground."""
    routes, directory = APIRouter(), files("multimdm.serving") / "page"
    for address, (name, kind) in _PAGE.items():
        content = (directory / name).read_bytes()
        routes.add_api_route(address, _fixed(content, kind), methods=["GET"], include_in_schema=False)
    return routes


def _description_routes(description: dict[str, Any]) -> APIRouter:
    """The interface, for programs and for people."""
    routes = APIRouter()
    for address, content, kind in (
        ("/openapi.json", json.dumps(description), "application/json"),
        ("/docs", api_page(description), "text/html; charset=utf-8"),
    ):
        routes.add_api_route(address, _fixed(content.encode(), kind), methods=["GET"], include_in_schema=False)
    return routes


def _fixed(content: bytes, kind: str):
    async def answer() -> Response:
        return Response(content, media_type=kind, headers={"Cache-Control": "no-cache"})

    return answer
