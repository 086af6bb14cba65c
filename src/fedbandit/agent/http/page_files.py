"""Serves the files of the page: those that lie in the package, by name, with a strict Content-Security-Policy.

The files are listed and read when this module is imported, so no request ever becomes a path of the disk.
"""

from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from fastapi import FastAPI, Request
from starlette.responses import Response

from fedbandit.agent.http.schemas import HttpError

__all__ = ["PAGE", "PAGE_HEADERS", "PageFile", "add_page", "file_response", "files_in", "is_page"]

_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".woff2": "font/woff2",
}
"""Content types by the end of a name; files that end otherwise are not served."""

PAGE_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "font-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Of every response, errors among them: no script but the agent's own, no other server, in no frame."""


class PageFile(NamedTuple):
    """One file of a page."""

    content: bytes
    media_type: str
    etag: str


def files_in(folder: Path) -> dict[str, PageFile]:
    """The files of a folder and those below it, by their names relative to it."""
    found: dict[str, PageFile] = {}
    for path in sorted(folder.rglob("*")):
        media_type = _TYPES.get(path.suffix)
        if media_type is not None and path.is_file():
            content = path.read_bytes()
            etag = f'"{sha256(content).hexdigest()[:32]}"'
            found[path.relative_to(folder).as_posix()] = PageFile(content, media_type, etag)
    return found


PAGE: Mapping[str, PageFile] = files_in(Path(__file__).parent / "page")
"""The files of the agent's page."""


def is_page(path: str) -> bool:
    """Whether a path is the page's: it needs no token, and reveals nothing about the site."""
    return path == "/" or path.startswith("/page/")


def file_response(files: Mapping[str, PageFile], name: str, request: Request) -> Response:
    """A file, or 304 where the browser has it already. ``no-cache``: a browser asks every time whether it has."""
    file = files.get(name)
    if file is None:
        raise HttpError(404, "not_found", f"there is nothing at {request.url.path}")
    headers = {"Cache-Control": "no-cache", "ETag": file.etag}
    if file.etag in (tag.strip().removeprefix("W/") for tag in request.headers.get("if-none-match", "").split(",")):
        return Response(status_code=304, headers=headers)
    if request.method == "HEAD":
        return Response(headers={**headers, "Content-Length": str(len(file.content)), "Content-Type": file.media_type})
    return Response(file.content, headers={**headers, "Content-Type": file.media_type})


def add_page(app: FastAPI) -> None:
    """Add the paths of the page; the server adds ``PAGE_HEADERS``."""
    methods = ["GET", "HEAD"]

    @app.api_route("/", methods=methods, operation_id="page", include_in_schema=False)
    async def page(request: Request) -> Response:
        return file_response(PAGE, "index.html", request)

    @app.api_route("/page/{name:path}", methods=methods, operation_id="page_file", include_in_schema=False)
    async def page_file(request: Request) -> Response:
        return file_response(PAGE, request.path_params["name"], request)

    _ = page, page_file
