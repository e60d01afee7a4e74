using Workerd = import "/workerd/workerd.capnp";

const config :Workerd.Config = (
  services = [
    (name = "main", worker = .worker),
    (name = "disk", disk = (writable = true)),
  ],
  sockets = [(name = "http", http = (), service = "main")],
);

const worker :Workerd.Worker = (
  modules = [(name = "worker.js", esModule = embed "worker.js")],
  compatibilityDate = "2026-04-01",
  durableObjectNamespaces = [(className = "Bench", uniqueKey = "bench", enableSql = true)],
  durableObjectStorage = (localDisk = "disk"),
  bindings = [(name = "BENCH", durableObjectNamespace = "Bench")],
);
