-- name: traded_tokens
-- The tokens of swaps that count, most traded first: one row for each.
SELECT token FROM token_totals ORDER BY trades DESC, token LIMIT ?;

-- name: add_tokens
-- Give each token of these points a number.
INSERT INTO price_tokens (token) SELECT json_extract(value, '$[0]') FROM json_each(?) WHERE true
ON CONFLICT (token) DO NOTHING;

-- name: add_points
-- Append points. An existing one stays as it is.
INSERT INTO price_points (token, at, price_usd, decimals, source, liquidity_usd, volume_usd)
SELECT t.id, json_extract(p.value, '$[1]'), json_extract(p.value, '$[2]'), json_extract(p.value, '$[3]'),
  json_extract(p.value, '$[4]'), json_extract(p.value, '$[5]'), json_extract(p.value, '$[6]')
FROM json_each(?) p
JOIN price_tokens t ON t.token = json_extract(p.value, '$[0]')
WHERE true
ON CONFLICT (token, at) DO NOTHING;

-- name: points_between
-- The points of tokens in a period. CROSS JOIN keeps this order: first the tokens, then their points by the primary key.
SELECT t.token AS token_id, p.at, p.price_usd, p.decimals, p.source, p.liquidity_usd, p.volume_usd
FROM json_each(?) asked
CROSS JOIN price_tokens t ON t.token = CAST(asked.value AS TEXT)
CROSS JOIN price_points p ON p.token = t.id AND p.at >= ? AND p.at <= ?
ORDER BY p.token, p.at;

-- name: newest_decimals
-- The decimals of a token, from the newest point that has them.
SELECT p.decimals FROM price_tokens t JOIN price_points p ON p.token = t.id
WHERE t.token = ? AND p.decimals IS NOT NULL ORDER BY p.at DESC LIMIT 1;
