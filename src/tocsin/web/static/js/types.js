/**
 * What the service sends, as types for editors. `make types` writes this file from `tocsin.shapes`: do not edit it.
 * No page loads it. Use a type as `@param {import("./types.js").Board} board`.
 */

/**
 * Actions, newest first. `name` is the scheduler instance.
 *
 * @typedef {{
 *   name: string | null,
 *   records: AuditRecord[],
 * }} AuditList
 */

/**
 * One action of the audit log. While it is `begun`, nothing is known of its end: it may have been done.
 *
 * @typedef {{
 *   id: string,
 *   at: number,
 *   key: string,
 *   role: "operator" | "cron",
 *   client: string,
 *   action: string,
 *   target: string | null,
 *   reason: string | null,
 *   outcome?: "begun" | "done" | "refused" | "failed",
 *   endedAt?: number | null,
 *   detail?: string | null,
 * }} AuditRecord
 */

/**
 * A page of the board; `next` is the cursor of the page after it.
 *
 * `sweptAt` is when the chain was last read completely, null if that is not known. `service` says how the
 * service
 * is, as `/readyz` does. `complete` says until which block the record is proven complete. `final`: the
 * competition
 * has ended, and the board is valued at the prices of its end. `sweepComplete`: the newest look for swaps found
 * all;
 * `firstSweep` is how far the first one is, null when it has ended.
 *
 * `period` is what the figures are of, from `since` on; null: from the start, or not known yet. A figure of a
 * period
 * is null where nothing was kept near its start. `round` is there when the period is a round.
 *
 * @typedef {{
 *   rows: BoardRow[],
 *   asOf: number,
 *   pricesAsOf: number | null,
 *   next: string | null,
 *   sweptAt: number | null,
 *   service: Health,
 *   complete?: Completeness | null,
 *   final?: boolean,
 *   sweepComplete?: boolean,
 *   firstSweep?: SweepProgress | null,
 *   period?: "round" | "24h" | "7d" | "30d" | "all",
 *   since?: number | null,
 *   round?: BoardRound | null,
 * }} Board
 */

/**
 * The round of a board (times in unix ms). `final`: it has a result, which `rows` show.
 *
 * The floors are those of its prize for the best return.
 *
 * @typedef {{
 *   roundId: string,
 *   startsAt: number,
 *   endsAt: number,
 *   final: boolean,
 *   minVolumeUsd: number,
 *   minPricedTradeCount: number,
 * }} BoardRound
 */

/**
 * One agent on the board. `wallets` are all addresses whose trades count in the row, the newest first.
 *
 * `pnlUsd` is unrealised: what was received less what was given, all of it at the prices of the board.
 * `pnlAtTradeUsd` takes each trade at the prices of its own time, for the `valuedTradeCount` trades whose prices
 * are known. `pnlPercent` is per cent of `capitalUsd`, the capital used: for each token the largest net amount
 * that
 * was given at any time. `thinTokens` have a price at which hardly anybody could trade: trades with them do not
 * count
 * in USD, nor do those with `unpricedTokens`; `uncountedTradeCount` of them are left out. `volumeAtTradeUsd` is
 * to `volumeUsd` what `pnlAtTradeUsd` is to `pnlUsd`.
 *
 * `rankChange` is how many places by P&L the agent has won (above 0) or lost in 24 hours, null where that is not
 * known. `sparkline` is its P&L every six hours of the last seven days, oldest first, and now; null is a gap.
 *
 * @typedef {{
 *   rank: number,
 *   stxAddress: string,
 *   btcAddress: string,
 *   displayName: string | null,
 *   bnsName: string | null,
 *   erc8004AgentId: number,
 *   tradeCount: number,
 *   latestTradeAt: number,
 *   volumeUsd: number | null,
 *   capitalUsd: number | null,
 *   pnlUsd: number | null,
 *   pnlPercent: number | null,
 *   pnlAtTradeUsd: number | null,
 *   valuedTradeCount: number,
 *   unpricedTokens: string[],
 *   thinTokens: string[],
 *   wallets: string[],
 *   uncountedTradeCount?: number,
 *   volumeAtTradeUsd?: number | null,
 *   rankChange?: number | null,
 *   sparkline?: (number | null)[],
 * }} BoardRow
 */

/**
 * How the month ends at the call rate of about the last day.
 *
 * `perDay` counts our own calls since `since`, and what others use of the same month. `usedAtEnd` is what would
 * be
 * used when the month ends. `runsOutAt` is when the limit would be reached; null when it is not.
 *
 * @typedef {{
 *   since: number,
 *   perDay: number,
 *   usedAtEnd: number,
 *   runsOutAt: number | null,
 * }} BudgetForecast
 */

/**
 * One upstream's budget: `plan` as configured, `limits` as corrected by headers.
 *
 * `forecast` is null until calls were counted for an hour: a first burst says nothing about a month.
 *
 * @typedef {{
 *   plan: QuotaStatus,
 *   limits: QuotaStatus,
 *   spent: SpentCalls,
 *   left: CallsLeft,
 *   reported: ReportedLimits,
 *   monthEndsAt: number,
 *   closedUntil: number | null,
 *   inFlight: number,
 *   waiting: WaitingCallers,
 *   forecast?: BudgetForecast | null,
 * }} BudgetStatus
 */

/**
 * Whose key a request has, and its role. A viewer may look and not act.
 *
 * @typedef {{
 *   name: string,
 *   role: "operator" | "viewer",
 * }} Caller
 */

/**
 * Calls left of the month, null without a monthly limit.
 *
 * @typedef {{
 *   month: number | null,
 * }} CallsLeft
 */

/**
 * Until which block the record is proven complete; null: that is not proven.
 *
 * `asOf` is when the list that proves it was last read completely. `obstacle` says what keeps the block from
 * being
 * the newest one, null if nothing does. `missingNonces` are transactions of eligible wallets that no list has
 * shown.
 *
 * @typedef {{
 *   untilBlock: number | null,
 *   asOf: number | null,
 *   missingNonces: number | null,
 *   obstacle: string | null,
 * }} Completeness
 */

/**
 * What runs at `now` (unix seconds): of several rounds the one that ends first.
 *
 * `next` is the one that starts next, `latest` the newest one with a result. `waiting` are
 * rounds that are over and have no result yet.
 *
 * @typedef {{
 *   now: number,
 *   running: RoundRow | null,
 *   next: RoundRow | null,
 *   waiting: RoundRow[],
 *   latest: LatestRound | null,
 * }} CurrentRounds
 */

/**
 * Days, newest first. `name` is the scheduler instance.
 *
 * @typedef {{
 *   name: string | null,
 *   days: DayTotals[],
 * }} DayList
 */

/**
 * A day in UTC, such as 2026-11-16; a run belongs to the day on which it started.
 *
 * @typedef {{
 *   day: string,
 *   tasks?: Record<string, TaskTotals>,
 * }} DayTotals
 */

/**
 * Every error: a sentence that says how to fix it, a code, and whether trying again may help.
 *
 * Some errors have further fields.
 *
 * @typedef {{
 *   error: string,
 *   code: string,
 *   retryable: boolean,
 * }} ErrorBody
 */

/**
 * How the service is, in one word and in sentences.
 *
 * `reasons` are why it is not ready, `notes` what else an operator should know.
 *
 * @typedef {{
 *   ready: boolean,
 *   state: "ready" | "starting" | "partial" | "limited" | "paused" | "overdue" | "failing" | "disabled" | "broken",
 *   reasons: string[],
 *   notes: string[],
 * }} Health
 */

/**
 * The error of a task's last failed run; a complete run clears it.
 *
 * @typedef {{
 *   at: number,
 *   class: string,
 *   message: string,
 * }} LastError
 */

/**
 * The newest round with a result.
 *
 * @typedef {{
 *   round: RoundRow,
 *   winners: RoundWinner[],
 * }} LatestRound
 */

/**
 * A round as an operator sees it.
 *
 * @typedef {{
 *   round: RoundRow,
 *   discrepancies: number,
 *   rewards: RewardRow[],
 * }} ListedRound
 */

/**
 * Where a page is in its list.
 *
 * @typedef {{
 *   limit: number,
 *   offset: number,
 *   hasMore: boolean,
 * }} Pagination
 */

/**
 * A price and when it was seen (unix ms); null: the source had none then.
 *
 * @typedef {{
 *   at: number,
 *   priceUsd: number | null,
 * }} PastPrice
 */

/**
 * What a token costs.
 *
 * `priceUsd` is null when the source says that it has no price. A peg was never fetched. Without decimals an
 * amount of the token has no value: they are never guessed. `liquidityUsd` is what the token's pools hold and
 * `volumeUsd` what they trade in a day, null where the source does not tell.
 *
 * @typedef {{
 *   priceUsd: number | null,
 *   decimals: number | null,
 *   fetchedAt: number | null,
 *   stale: boolean,
 *   source: "tenero" | "peg",
 *   liquidityUsd?: number | null,
 *   volumeUsd?: number | null,
 * }} Price
 */

/**
 * A token's prices of a period, oldest first, a few hundred at most. A gap stays a gap.
 *
 * @typedef {{
 *   token: string,
 *   period: "24h" | "7d" | "30d",
 *   asOf: number,
 *   points: PastPrice[],
 * }} PriceHistory
 */

/**
 * Prices by token id. `missing` tokens were never priced.
 *
 * @typedef {{
 *   prices: Record<string, Price>,
 *   missing: string[],
 *   supportedTokens: string[],
 * }} PriceList
 */

/**
 * A run under way.
 *
 * @typedef {{
 *   startedAt: number,
 *   done: number,
 *   total: number,
 *   run: number,
 * }} Progress
 */

/**
 * Calls per window, null where there is no such window, and the share that is kept for requests.
 *
 * @typedef {{
 *   second: number | null,
 *   minute: number | null,
 *   month: number | null,
 *   requestShare: number,
 *   isCap?: boolean,
 * }} QuotaStatus
 */

/**
 * A transaction that does not count. `sentence` says what can be done.
 *
 * @typedef {{
 *   txid: string,
 *   code: string,
 *   reason: string,
 *   sentence: string,
 *   sender: string,
 *   contractId: string | null,
 *   functionName: string | null,
 *   burnBlockTime: number,
 *   refusedAt: number,
 * }} RecentRefusal
 */

/**
 * What a refresh returns: in JSON the run's counters, and `run` besides them.
 *
 * @typedef {{
 *   run: RefreshRun,
 *   [name: string]: any,
 * }} RefreshResult
 */

/**
 * The run that a refresh started or joined.
 *
 * @typedef {{
 *   id: number,
 *   outcome: "running" | "ok" | "partial" | "limited" | "failed" | "stopped" | "interrupted",
 *   error: RunError | null,
 *   reason: string | null,
 *   joined: boolean,
 *   pausedUntil: number | null,
 * }} RefreshRun
 */

/**
 * A page of refusals, newest first; `next` is the cursor of the page after it.
 *
 * @typedef {{
 *   refusals: RecentRefusal[],
 *   next: string | null,
 * }} RefusalPage
 */

/**
 * What the upstream's newest headers reported; null where they said nothing.
 *
 * @typedef {{
 *   minuteRemaining: number | null,
 *   monthRemaining: number | null,
 *   anonymous: boolean | null,
 * }} ReportedLimits
 */

/**
 * A prize, and whether it was paid.
 *
 * @typedef {{
 *   round_id: string,
 *   category: "overall_pnl" | "volume" | "return",
 *   rank: number,
 *   stx_address: string,
 *   erc8004_agent_id: number,
 *   amount_sats: number,
 *   status: "pending" | "paid" | "failed" | "void",
 *   payout_txid: string | null,
 *   paid_at: string | null,
 *   notes: string | null,
 *   created_at: string,
 * }} RewardRow
 */

/**
 * All rounds, newest first, and the rule by which they follow each other.
 *
 * @typedef {{
 *   now: number,
 *   rounds: ListedRound[],
 *   rule: RoundRule | null,
 * }} RoundList
 */

/**
 * Rounds with a result, newest first; `winners` by round.
 *
 * @typedef {{
 *   rounds: RoundRow[],
 *   pagination: Pagination,
 *   winners?: Record<string, RoundWinner[]>,
 * }} RoundPage
 */

/**
 * A round. `rules` are all its rules, exact. `version` counts its results: reopening it makes the next one.
 *
 * `digest` is the SHA-256 of its file. `waiting_reason` says why a round that is over has no result yet; it
 * waits
 * since `waiting_since` (unix ms). `note` says why it was made void or opened again.
 *
 * @typedef {{
 *   round_id: string,
 *   starts_at: number,
 *   ends_at: number,
 *   grace_ends_at: number,
 *   status: "open" | "closed" | "finalizing" | "finalized" | "partially_paid" | "paid" | "void",
 *   min_volume_usd: number,
 *   min_priced_trade_count: number,
 *   created_at: string,
 *   finalized_at: string | null,
 *   version: number,
 *   digest: string | null,
 *   closed_at: string | null,
 *   captured_at: string | null,
 *   allowlist_version: string | null,
 *   complete_until_block: number | null,
 *   waiting_reason: string | null,
 *   waiting_since: number | null,
 *   note: string | null,
 *   rules: RoundRules,
 * }} RoundRow
 */

/**
 * Rounds that follow each other without a gap, the first one from `first_starts_at` on (unix seconds).
 *
 * @typedef {{
 *   first_starts_at: number,
 *   prefix?: string,
 *   first_number?: number,
 *   period_s?: number,
 *   grace_s?: number,
 *   min_volume_usd?: string,
 *   min_priced_trade_count?: number,
 *   rewards?: Record<string, number>,
 * }} RoundRule
 */

/**
 * The rules of a round. They are part of its result, and do not change once it has begun.
 *
 * A token is thin, and counts like one without a price, when its liquidity or its volume of a day is below the
 * floor,
 * or when its liquidity is not known and it is not one of `core_tokens`. A swap of less than `dust_usd` does not
 * count
 * towards `min_priced_trade_count`. `rewards` are sats.
 *
 * @typedef {{
 *   round_id: string,
 *   starts_at: number,
 *   ends_at: number,
 *   grace_ends_at: number,
 *   min_volume_usd?: string,
 *   min_priced_trade_count?: number,
 *   min_liquidity_usd?: string,
 *   min_day_volume_usd?: string,
 *   dust_usd?: string,
 *   core_tokens?: string[],
 *   rewards?: Record<string, number>,
 * }} RoundRules
 */

/**
 * Who won a category of a round.
 *
 * @typedef {{
 *   category: "overall_pnl" | "volume" | "return",
 *   stx_address: string,
 *   erc8004_agent_id: number,
 *   display_name: string | null,
 *   amount_sats: number,
 * }} RoundWinner
 */

/**
 * A run and its lines. `progress` is null unless it runs. `name` is the scheduler instance.
 *
 * @typedef {{
 *   name: string | null,
 *   run: RunRecord,
 *   progress: Progress | null,
 *   log: RunLines,
 * }} RunDetail
 */

/**
 * Why a run failed: the class of the exception or of the upstream's answer, and a sentence.
 *
 * @typedef {{
 *   class: string,
 *   message: string,
 * }} RunError
 */

/**
 * A log line of a run: its event and its fields as text, without secrets.
 *
 * @typedef {{
 *   at: number,
 *   level: "DEBUG" | "INFO" | "WARN" | "ERROR",
 *   event: string,
 *   text: string,
 * }} RunLine
 */

/**
 * The first lines of a run and its last ones; `leftOut` is how many there were in between.
 *
 * @typedef {{
 *   lines?: RunLine[],
 *   leftOut?: number,
 * }} RunLines
 */

/**
 * Runs, newest first. `name` is the scheduler instance. `next` is where to continue, null at the end.
 *
 * @typedef {{
 *   name: string | null,
 *   runs: RunRecord[],
 *   next?: number | null,
 * }} RunList
 */

/**
 * What is kept of a run. `reason` says why a run that did not fail is not complete.
 *
 * @typedef {{
 *   id: number,
 *   task: string,
 *   trigger: "alarm" | "refresh" | "rerun",
 *   slotAt: number | null,
 *   missedSlots: number,
 *   startedAt: number,
 *   endedAt?: number | null,
 *   durationMs?: number | null,
 *   outcome?: "running" | "ok" | "partial" | "limited" | "failed" | "stopped" | "interrupted",
 *   result?: Record<string, any>,
 *   error?: RunError | null,
 *   reason?: string | null,
 *   calls?: number,
 *   done?: number,
 *   total?: number,
 * }} RunRecord
 */

/**
 * One event of the stream: in JSON its fields stand besides `seq`, `at` and `event`.
 *
 * @typedef {{
 *   seq: number,
 *   at: number,
 *   event: string,
 *   [name: string]: any,
 * }} SchedulerEvent
 */

/**
 * What the console reads.
 *
 * `refusals` are those of the last 24 hours by code. `lists` says when each contract's list was last read to its
 * end, the oldest first; null if never. Both are null while the database does not answer. `complete` says until
 * which
 * block the record is proven complete. `simulator` is where the simulator of a demo is; null in every real
 * service.
 *
 * @typedef {{
 *   name: string | null,
 *   status: Status,
 *   health: Health,
 *   refusals: Record<string, number> | null,
 *   lists: Record<string, number | null> | null,
 *   caller?: Caller | null,
 *   complete?: Completeness | null,
 *   simulator?: string | null,
 * }} SchedulerOverview
 */

/**
 * Calls in the current windows. `month` includes those that others made with the same key.
 *
 * @typedef {{
 *   second: number,
 *   minute: number,
 *   month: number,
 *   monthByOthers: number,
 * }} SpentCalls
 */

/**
 * Everything the scheduler knows about itself.
 *
 * In JSON each task's last run is `last<Task>RunAt` and `last<Task>Result`, as the site named them. `lastJobAt`
 * is
 * when each request job last succeeded: `receive` is a push of Chainhook.
 *
 * @typedef {{
 *   name: string | null,
 *   active: boolean,
 *   now: number,
 *   nextAlarmAt: number | null,
 *   pausedUntil: number | null,
 *   pauseMaxMs: number,
 *   consecutiveFailures: Record<string, number>,
 *   nextRunAfter: Record<string, number | null>,
 *   tasks: Record<string, TaskStatus>,
 *   budgets: Record<string, BudgetStatus>,
 *   lastJobAt?: Record<string, number>,
 *   [name: string]: any,
 * }} Status
 */

/**
 * How many of the lists that a sweep reads were read so far.
 *
 * @typedef {{
 *   done: number,
 *   total: number,
 * }} SweepProgress
 */

/**
 * One task.
 *
 * `cadenceReason` explains the effective cadence, `cadenceWhy` the configured one. `lastSuccessAt` is the end of
 * its last complete run. `condition` says how it is, `problem` why the service is not ready because of it.
 *
 * @typedef {{
 *   enabled: boolean,
 *   upstream: string | null,
 *   cadenceMs: number,
 *   effectiveCadenceMs: number,
 *   cadenceReason: string,
 *   cadenceWhy: string,
 *   sliceMs: number,
 *   nextDueAt: number | null,
 *   running: Progress | null,
 *   lastSuccessAt: number | null,
 *   lastError: LastError | null,
 *   missedSlots: number,
 *   runCounts: Record<string, number>,
 *   overdue: boolean,
 *   failing: boolean,
 *   condition: "ok" | "starting" | "partial" | "limited" | "paused" | "overdue" | "failing" | "disabled",
 *   sentence: string,
 *   problem: string | null,
 *   overdueAfterMs?: number,
 * }} TaskStatus
 */

/**
 * One task's runs of a day. `items` are the units of work that they finished, as their progress counts them.
 *
 * @typedef {{
 *   runs?: number,
 *   outcomes?: Record<string, number>,
 *   calls?: number,
 *   items?: number,
 *   durationMs?: number,
 *   durationMaxMs?: number,
 * }} TaskTotals
 */

/**
 * A recorded swap. `tx_status` and the two scores are there because the site's clients read them.
 *
 * @typedef {{
 *   txid: string,
 *   sender: string,
 *   contract_id: string,
 *   function_name: string,
 *   token_in: string,
 *   amount_in: string,
 *   token_out: string,
 *   amount_out: string,
 *   burn_block_time: number,
 *   block_height: number,
 *   tx_status: string,
 *   source: "agent" | "cron" | "chainhook",
 *   provider: string | null,
 *   scored_value?: number | null,
 *   scored_at?: number | null,
 * }} Trade
 */

/**
 * A page of trades, newest first.
 *
 * @typedef {{
 *   trades: Trade[],
 *   next_cursor: string | null,
 * }} TradePage
 */

/**
 * Callers that wait for a permit, by lane.
 *
 * @typedef {{
 *   task: number,
 *   request: number,
 * }} WaitingCallers
 */

export {}; // makes this a module: without it, no other module can import a type
