"""Any class written for `bindings.py` as a Durable Object on Cloudflare. See docs/objects.md."""

from types import SimpleNamespace
from typing import Any, ClassVar

from tocsin import settings
from tocsin.bindings import DurableObject
from tocsin.platform.cloudflare import javascript
from tocsin.platform.cloudflare.clock import CloudflareClock
from tocsin.platform.cloudflare.context import CloudflareContext, keep_alive, object_id
from tocsin.platform.cloudflare.environment import open_env_logger, texts
from tocsin.platform.cloudflare.objects import CloudflareNamespace, CloudflareObject


class OwnObject(CloudflareObject):
    """Base of the class that `wrangler.jsonc` names. `makes` is the class of the object."""

    makes: ClassVar[type[DurableObject]]

    def _make(self, ctx: Any, env: Any) -> DurableObject:
        config = settings.read(texts(env))
        logger = open_env_logger(env, config, CloudflareClock(), lambda work: keep_alive(ctx, work))
        return self.makes(CloudflareContext(ctx, object_id(ctx, None, ""), logger), objects_of(env))


def objects_of(env: Any) -> SimpleNamespace:
    """The bindings of objects, like those of `open_objects` locally: `objects_of(env).HEART.get_by_name("v1")`."""
    bindings = javascript.unwrap(env, "_env")
    found = {
        name: getattr(bindings, name) for name in javascript.to_json(javascript.js.Object.keys(bindings))
    }
    return SimpleNamespace(
        **{
            name: CloudflareNamespace(binding)
            for name, binding in found.items()
            if javascript.kind(binding) == "DurableObjectNamespace"
        }
    )
