// The pages as Cloudflare serves them: miniflare's asset router, as in `wrangler dev`, in front of a Worker with one
// fixed response. Arguments: the directory, and `assets` of wrangler.jsonc. Prints its address; ends when stdin ends.
import { Miniflare } from "miniflare";

const [directory, options] = process.argv.slice(2);
const { html_handling, not_found_handling, run_worker_first } = JSON.parse(options);
const miniflare = new Miniflare({
  modules: true,
  name: "worker",
  compatibilityDate: "2026-07-30",
  script: `export default { fetch: () => new Response("the Worker", { status: 404 }) }`,
  assets: {
    workerName: "worker",
    directory,
    assetConfig: { html_handling, not_found_handling },
    routerConfig: { has_user_worker: true, static_routing: { user_worker: run_worker_first } },
  },
});
console.log((await miniflare.ready).origin);
process.stdin.resume().on("end", () => miniflare.dispose());
