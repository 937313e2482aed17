"""Who may use the dashboard: a browser that was given the address with its token, on its page.

The server listens on loopback, but other users of the machine, and pages of other sites in the user's browser, reach
that too. So each request must name a host of this server (against DNS rebinding), come from its own page (against
requests of other sites), and carry the cookie that the token of the printed address was exchanged for.
"""

from __future__ import annotations

import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable

from aiohttp import web

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY, "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store", "Cross-Origin-Opener-Policy": "same-origin", "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}  # fmt: skip
OVER = "This page's session is over: open the address that `outrider dashboard` printed last."
OTHER_HOST = "This host is not the dashboard's: open the address that `outrider dashboard` printed."
OTHER_SITE = "The dashboard answers its own page alone, not other sites."
log = logging.getLogger("dashboard")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Access:
    """The token, the cookie that it is exchanged for, and the checks of each request."""

    def __init__(self) -> None:
        self.token, self._cookie = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self.port = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}/?token={self.token}"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of every response."""
        return HEADERS

    @property
    def _name(self) -> str:
        """Cookies do not differ by port, so that of each dashboard has a name of its own."""
        return f"outrider-{self.port}"

    @web.middleware
    async def check(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            response = self._refusal(request) or self._exchanged(request) or await handler(request)
        except web.HTTPException as error:
            response = refused(error.status, error.text or error.reason)
        except (web.RequestPayloadError, ValueError) as error:  # such as a body that is not what its header says
            response = refused(400, f"The request cannot be read: {type(error).__name__}.")
        except Exception as error:  # the server's own logger is silent, because anybody can write into it
            log.exception("answering a request of the page failed (a bug in Outrider)")
            response = refused(500, f"The dashboard failed: {type(error).__name__}.")
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    def _refusal(self, request: web.Request) -> web.Response | None:
        hosts = {f"{name}:{self.port}" for name in ("127.0.0.1", "localhost")}
        if request.host not in hosts:
            return refused(403, OTHER_HOST)
        origin, site = request.headers.get("Origin"), request.headers.get("Sec-Fetch-Site", "none")
        if origin is not None and origin != f"http://{request.host}":
            return refused(403, OTHER_SITE)
        is_link = request.method == "GET" and request.path == "/"
        if site not in ("none", "same-origin") and not is_link:
            return refused(403, OTHER_SITE)
        if request.method not in ("GET", "HEAD") and (origin is None or request.headers.get("X-Outrider") != "1"):
            return refused(403, OTHER_SITE)
        return None

    def _exchanged(self, request: web.Request) -> web.Response | None:
        """The answer for a request with the token, or without the cookie; None if it has the cookie."""
        given = request.query.get("token") if request.path == "/" else None
        if given is not None and _is_same(given, self.token):
            response = web.Response(status=303, headers={"Location": "/"})
            response.set_cookie(self._name, self._cookie, httponly=True, samesite="Strict", path="/")
            return response
        if _is_same(request.cookies.get(self._name, ""), self._cookie):
            return None
        return refused(401, OVER) if request.path != "/" else web.Response(status=401, text=f"{OVER}\n")


def _is_same(given: str, right: str) -> bool:
    return hmac.compare_digest(given.encode(errors="replace"), right.encode())


def refused(status: int, problem: str) -> web.Response:
    return web.json_response({"problem": problem}, status=status)
