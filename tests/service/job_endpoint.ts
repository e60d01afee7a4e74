// An endpoint of a site for the test of jobs: it verifies each call, remembers what it has done, and misbehaves once.
import { createServer } from "node:http";
import { verify } from "../../examples/verify-job";

const calls: object[] = [];
const paid = new Map<string, number>();

const server = createServer((request, response) => {
  let body = "";
  request.on("data", (part) => (body += part));
  request.on("end", () => {
    if (request.url === "/calls") return response.end(JSON.stringify(calls));
    const key = verify(request.headers as Record<string, string>, body, process.env.JOB_SECRET ?? "");
    calls.push({ url: request.url, key, ...JSON.parse(body) });
    if (key === null) return response.writeHead(401).end("forged");
    const isFirst = calls.filter((call) => (call as { url: string }).url === request.url).length === 1;
    if (!paid.has(key)) paid.set(key, paid.size + 1);
    if (request.url === "/hang-once" && isFirst) return; // it has done its work, and its answer never arrives
    if (request.url === "/limited-once" && isFirst) return response.writeHead(429, { "retry-after": "1" }).end("busy");
    response.end(JSON.stringify({ payment: paid.get(key), payments: paid.size }));
  });
});
server.listen(0, "127.0.0.1", () => console.log((server.address() as { port: number }).port));
