"""Serves /healthz and /metrics of a sidecar if a port is set."""

from __future__ import annotations

from aiohttp import web

from outrider.runtime.http import HttpServer
from outrider.runtime.pump import Pump
from outrider.sidecar.core.actions import Action
from outrider.sidecar.core.events import Event
from outrider.sidecar.core.state import State
from outrider.sidecar.core.step import describe


async def start(port: int, pump: Pump[State, Event, Action]) -> HttpServer:
    async def healthz(_request: web.Request) -> web.Response:
        return web.json_response({"state": describe(pump.state)})

    async def metrics(_request: web.Request) -> web.Response:
        return web.Response(text=metrics_text(pump.state))

    application = web.Application()
    application.add_routes([web.get("/healthz", healthz), web.get("/metrics", metrics)])
    server = HttpServer(application)
    await server.start_on_port(None, port)
    return server


def metrics_text(state: State) -> str:
    """The metrics in Prometheus' text format."""
    ranks = state.work.ranks if state.work else ()
    values = {
        "outrider_sidecar_linked": int(state.link.welcomed),
        "outrider_generation": state.generation.number,
        "outrider_step": max((rank.step for rank in ranks), default=0),
        "outrider_workers_alive": state.work.alive if state.work else 0,
        "outrider_trainer_cpu_cores": state.cpu,
        "outrider_trainer_memory_mib": state.memory_mib,
    }
    return "".join(f"# TYPE {name} gauge\n{name} {value}\n" for name, value in values.items())
