// The pages as Cloudflare serves them: miniflare's asset router, as `wrangler dev` has it, before a Worker that only
// says that it was asked. Arguments: the directory, and `assets` of wrangler.jsonc. Prints its address, ends with stdin.
import { Miniflare } from "miniflare";

const [directory, given] = process.argv.slice(2);
const { html_handling, not_found_handling, run_worker_first } = JSON.parse(given);
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
