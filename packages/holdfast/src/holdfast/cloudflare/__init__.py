"""The same interfaces on Cloudflare's bindings, and Cloudflare's names for programs that run elsewhere."""

import sys
from typing import Any


def install() -> None:
    """Let a program for Cloudflare import `workers`, `js` and `pyodide.ffi` here. On Cloudflare it does nothing."""
    if sys.platform != "emscripten":
        from holdfast.local import cloudflare_names

        sys.modules.update(cloudflare_names.modules())


def environment(objects: Any) -> Any:
    """`env` for such a program: its objects, as `open_objects` yields them."""
    from holdfast.local import cloudflare_names

    cloudflare_names.env._env = objects  # noqa: SLF001 - as the SDK calls it
    return cloudflare_names.env
