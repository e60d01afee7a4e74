# The configuration of workerd for the tests. D1 and KV are miniflare's, as in `wrangler dev`; only they need the
# experimental flag. Node's compatibility is off in our Worker: Pyodide would assume that it runs on Node.
# support/workerd.py fills in the names with a dollar sign.
using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  v8Flags = [$v8_flags],
  services = [
    (name = "main", worker = .worker),
    (name = "logs", worker = .logs),
    (name = "site", worker = .site),
    (name = "objects", disk = (writable = true)),
    (name = "blobs", disk = (writable = true)),
    (name = "loopback", network = (allow = ["local"])),
    (name = "kv", worker = .kv),
    (name = "kv-object", worker = .kvObject),
    (name = "d1", worker = .d1),
    (name = "d1-object", worker = .d1Object),
  ],
  sockets = [(name = "http", http = (), service = "main")],
  extensions = [(modules = [
    (name = "miniflare:shared", esModule = $shared), (name = "miniflare:zod", esModule = $zod)
  ])],
);

const worker :Workerd.Worker = (
  modules = [$modules],
  compatibilityDate = "$date",
  compatibilityFlags = ["no_nodejs_compat", "no_nodejs_compat_v2", $flags],
  durableObjectNamespaces = [
    (className = "SchedulerDO", uniqueKey = "scheduler", enableSql = true),
    (className = "ContractDO", uniqueKey = "contract", enableSql = true),
    (className = "HeartDO", uniqueKey = "heart", enableSql = true),
  ],
  durableObjectStorage = (localDisk = "objects"),
  bindings = [$bindings],
  globalOutbound = "loopback",
);

const kv :Workerd.Worker = (
  modules = [(name = "entry.js", esModule = $entry)], compatibilityDate = "2023-07-24",
  bindings = [
    (name = "MINIFLARE_NAMESPACE", text = "kv"),
    (name = "MINIFLARE_OBJECT", durableObjectNamespace = (className = "KVNamespaceObject", serviceName = "kv-object")),
  ],
);
const kvObject :Workerd.Worker = (
  modules = [(name = "kv.js", esModule = $kv)], compatibilityDate = "2023-07-24",
  compatibilityFlags = ["nodejs_compat", "experimental"],
  durableObjectNamespaces = [(className = "KVNamespaceObject", uniqueKey = "kv", enableSql = true)],
  durableObjectStorage = (localDisk = "objects"),
  bindings = [(name = "MINIFLARE_BLOBS", service = "blobs")],
);
const d1 :Workerd.Worker = (
  modules = [(name = "entry.js", esModule = $entry)], compatibilityDate = "2023-07-24",
  bindings = [
    (name = "MINIFLARE_NAMESPACE", text = "db"),
    (name = "MINIFLARE_OBJECT", durableObjectNamespace = (className = "D1DatabaseObject", serviceName = "d1-object")),
  ],
);
const d1Object :Workerd.Worker = (
  modules = [(name = "d1.js", esModule = $d1)], compatibilityDate = "2023-07-24",
  compatibilityFlags = ["nodejs_compat", "experimental"],
  durableObjectNamespaces = [(className = "D1DatabaseObject", uniqueKey = "d1", enableSql = true)],
  durableObjectStorage = (localDisk = "objects"),
  bindings = [(name = "MINIFLARE_BLOBS", service = "blobs")],
);
const logs :Workerd.Worker = (
  modules = [(name = "logs.js", esModule = $logs)], compatibilityDate = "$date",
);
const site :Workerd.Worker = (
  modules = [(name = "site.js", esModule = $site)], compatibilityDate = "$date",
  bindings = [
    (name = "SCHEDULER", durableObjectNamespace = (className = "SchedulerDO", serviceName = "main")),
  ],
);
const d1Binding :Workerd.Worker.Binding.WrappedBinding = (
  moduleName = "cloudflare-internal:d1-api", innerBindings = [(name = "fetcher", service = "d1")],
);
