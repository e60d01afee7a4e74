import { createHmac, timingSafeEqual } from "node:crypto";

/** Return the idempotency key, or null if the call is forged or older than five minutes. */
export function verify(headers: Record<string, string>, body: string, secret: string): string | null {
  const id = headers["webhook-id"], at = headers["webhook-timestamp"];
  const digest = createHmac("sha256", secret).update(`${id}.${at}.${body}`).digest("base64");
  const ours = Buffer.from(`v1,${digest}`), sent = Buffer.from(headers["webhook-signature"] ?? "");
  const isOurs = ours.length === sent.length && timingSafeEqual(ours, sent);
  return isOurs && Math.abs(Date.now() / 1000 - Number(at)) < 300 ? id : null;
}
