/**
 * What the service sends, as types for editors. `make types` writes this file: do not edit it.
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
 * One action in the audit log. While it is `begun`, its outcome is not known: it may have been done.
 *
 * @typedef {{
 *   key: string,
 *   role: "operator" | "cron",
 *   client: string,
 *   action: string,
 *   target?: string | null,
 *   reason?: string | null,
 *   id: string,
 *   at: number,
 *   outcome?: "begun" | "done" | "refused" | "failed",
 *   endedAt?: number | null,
 *   detail?: string | null,
 * }} AuditRecord
 */

/**
 * A page of the board; `next` is the cursor of the next page.
 *
 * `sweptAt` is when the chain was last read completely; null if that is not known. `service` is the health of
 * the
 * service, as in `/readyz`. `complete` shows up to which block the record is proven complete. `final`: the
 * competition
 * has ended, and the board uses the prices of its end. `sweepComplete`: the newest search for swaps was
 * complete.
 * `firstSweep` is the progress of the first one; null once it has ended.
 *
 * The figures cover `period`, which starts at `since`; null: from the start, or not known yet. A figure of a
 * period is
 * null if no point was kept near its start. `round` is present if the period is a round.
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
 * The minimums apply to its prize for the best return.
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
 * One agent on the board. `wallets` has all addresses whose trades count in the row, newest first.
 *
 * `pnlUsd` is unrealized: what was received less what was given, all at the prices of the board. `pnlAtTradeUsd`
 * and `volumeAtTradeUsd` value each trade at the prices of its own time, for the `valuedTradeCount` trades whose
 * prices are known. `pnlPercent` is a percentage of `capitalUsd`, the capital used: for each token, the largest
 * net
 * amount given at any time. `thinTokens` have a price at which hardly anybody could trade. Trades with them or
 * with
 * `unpricedTokens` do not count in USD, and neither do the `excessTradeCount` trades that were worth more than a
 * pool can pay; `uncountedTradeCount` is the number of all these trades.
 *
 * `rankChange` is how many places by P&L the agent gained (above 0) or lost in 24 hours; null if that is not
 * known.
 * `sparkline` is its P&L every six hours over the last seven days, oldest first, and now; null is a gap.
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
 *   excessTradeCount?: number,
 * }} BoardRow
 */

/**
 * How the month will end at the call rate of about the last day.
 *
 * `perDay` includes our own calls since `since`, and the calls of others in the same month. `usedAtEnd` is the
 * expected use at the end of the month. `runsOutAt` is when the limit would be reached; null if it is not.
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
 * `forecast` is null until calls have been counted for an hour: a first burst does not predict a month.
 *
 * @typedef {{
 *   plan: Quota,
 *   limits: Quota,
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
 * The key of a request, by its `name`. A viewer may look but not act.
 *
 * @typedef {{
 *   name: string,
 *   role: "operator" | "viewer",
 * }} Caller
 */

/**
 * Calls left in the `month`, those kept for requests included, and `forTasks`; null without a monthly limit.
 *
 * @typedef {{
 *   month?: number | null,
 *   forTasks?: number | null,
 * }} CallsLeft
 */

/**
 * Up to which block the record is proven complete; null: that is not proven.
 *
 * `asOf` is when the list that proves it was last read completely. `obstacle` explains why the block is not the
 * newest one; null if it is. `missingNonces` counts transactions of eligible wallets that no list has shown.
 *
 * @typedef {{
 *   untilBlock: number | null,
 *   asOf: number | null,
 *   missingNonces: number | null,
 *   obstacle: string | null,
 * }} Completeness
 */

/**
 * The round that runs at `now` (unix seconds); if there are several, the one that ends first.
 *
 * `next` is the one that starts next, `latest` the newest one with a result. `waiting` has the rounds that are
 * over
 * but have no result yet.
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
 * Every error has a sentence that explains how to fix it, a code, and whether a retry may help.
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
 * The health of the service, in one word and in sentences.
 *
 * `reasons` explain why it is not ready, `notes` what else an operator should know.
 *
 * @typedef {{
 *   ready: boolean,
 *   state: "ready" | "starting" | "partial" | "limited" | "paused" | "overdue" | "failing" | "disabled" | "broken",
 *   reasons: string[],
 *   notes: string[],
 * }} Health
 */

/**
 * The error of a task's last failed run, as in its record: its `class` and `message`; a complete run clears it.
 *
 * @typedef {{
 *   class: string,
 *   message: string,
 *   at: number,
 * }} LastError
 */

/**
 * The newest round with a result. `sentence` says who won, and why nobody with a better rank did.
 *
 * @typedef {{
 *   round: RoundRow,
 *   winners: RoundWinner[],
 *   sentence?: string,
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
 * What one program has used since the process started.
 *
 * `calls` were made for it, `hits` were answered without one. `stale` answers were given for lack of a new one;
 * `refused` ones had no call left, `failed` ones no usable answer. Mutable, because counting must be cheap.
 *
 * @typedef {{
 *   lookups?: number,
 *   calls?: number,
 *   hits?: number,
 *   stale?: number,
 *   refused?: number,
 *   failed?: number,
 * }} LookupUse
 */

/**
 * A price and the time when it was seen (unix ms); null: the source had none then.
 *
 * @typedef {{
 *   at: number,
 *   priceUsd: number | null,
 * }} PastPrice
 */

/**
 * The price of a token.
 *
 * `priceUsd` is null if the source has no price. A peg is never fetched. Without `decimals`, an amount of the
 * token
 * has no value: they are never guessed. `liquidityUsd` is what the token's pools hold and `volumeUsd` what they
 * trade in a day; null if the source does not report it.
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
 * A token's prices in a period, oldest first, a few hundred at most. Gaps are not filled.
 *
 * @typedef {{
 *   token: string,
 *   period: "24h" | "7d" | "30d",
 *   asOf: number,
 *   points: PastPrice[],
 * }} PriceHistory
 */

/**
 * Prices by token id. `missing` has the tokens that were never priced.
 *
 * @typedef {{
 *   prices: Record<string, Price>,
 *   missing: string[],
 *   supportedTokens: string[],
 * }} PriceList
 */

/**
 * A run under way; `run` is its number.
 *
 * @typedef {{
 *   startedAt: number,
 *   done: number,
 *   total: number,
 *   run: number,
 * }} Progress
 */

/**
 * Calls per window, null for a window without a limit, and the share that is reserved for requests.
 *
 * `isCap`: never exceeded, whatever the upstream reports. For a key that others use too.
 *
 * @typedef {{
 *   second?: number | null,
 *   minute?: number | null,
 *   month?: number | null,
 *   requestShare?: number,
 *   isCap?: boolean,
 * }} Quota
 */

/**
 * A transaction that does not count. `sentence` explains what can be done.
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
 * The result of a refresh: in JSON the run's counters, and `run` next to them.
 *
 * @typedef {{
 *   run: RefreshRun,
 *   [name: string]: any,
 * }} RefreshResult
 */

/**
 * The run that a refresh started or joined. `error` explains why it failed, `reason` why it is not complete.
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
 * A page of refusals, newest first; `next` is the cursor of the next page.
 *
 * @typedef {{
 *   refusals: RecentRefusal[],
 *   next: string | null,
 * }} RefusalPage
 */

/**
 * The limits in the upstream's newest headers; null for those that they did not report.
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
 *   category: "overall_pnl" | "volume" | "return",
 *   rank: number,
 *   stx_address: string,
 *   erc8004_agent_id: number,
 *   amount_sats: number,
 *   round_id: string,
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
 * A round. `rules` has all its rules, exact. `version` counts its results: reopening it starts the next one.
 *
 * `digest` is the SHA-256 of its file. `waiting_reason` explains why a round that is over has no result yet; it
 * has
 * waited since `waiting_since` (unix ms). `note` explains why it was made void or reopened.
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
 * Rounds that follow each other without a gap; the first starts at `first_starts_at` (unix seconds).
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
 * A token is thin, and counts like one without a price, if its liquidity or its daily volume is below the floor,
 * or
 * if its liquidity is not known and it is not one of `core_tokens`. A swap of less than `dust_usd` does not
 * count
 * toward `min_priced_trade_count`. `rewards` are in sats.
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
 * The winner of a category of a round.
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
 * A run and its lines. `progress` is null unless it is running. `name` is the scheduler instance.
 *
 * @typedef {{
 *   name: string | null,
 *   run: RunRecord,
 *   progress: Progress | null,
 *   log: RunLines,
 * }} RunDetail
 */

/**
 * Why a run failed: `class` is the class of the exception or of the upstream's answer, and `message` a sentence.
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
 * The first and the last lines of a run; `leftOut` is the number of lines in between.
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
 * The stored record of a run. `error` explains why it failed, `reason` why another one is not complete.
 *
 * `result` has the task's own counters.
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
 * One event of the stream: in JSON its fields are next to `seq`, `at` and `event`.
 *
 * @typedef {{
 *   seq: number,
 *   at: number,
 *   event: string,
 *   [name: string]: any,
 * }} SchedulerEvent
 */

/**
 * What the console reads: the scheduler's `status`, the service's `health`, and the state of the record.
 *
 * `refusals` counts those of the last 24 hours by code. `lists` has the time when each contract's list was last
 * read
 * to its end, oldest first; null if never. Both are null while the database does not answer. `complete` shows up
 * to
 * which block the record is proven complete. `simulator` is the address of a demo's simulator; null in every
 * real
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
 * Calls in the current windows. `month` includes calls that others made with the same key.
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
 * In JSON, each task's last run is `last<Task>RunAt` and `last<Task>Result`, as the site named them. `lastJobAt`
 * is
 * when each request job last succeeded; `receive` is a Chainhook push.
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
 *   lookups?: Record<string, LookupUse>,
 *   problems?: string[],
 *   [name: string]: any,
 * }} Status
 */

/**
 * How many of its lists a sweep has read so far.
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
 * its last complete run. `sentence` describes its state. `condition` is its health; `problem` explains why it
 * makes
 * the service not ready. `title` is its name for people. Of a job, `nextAt` are the next times of its schedule.
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
 *   title?: string,
 *   pausedUntil?: number | null,
 *   nextAt?: number[],
 * }} TaskStatus
 */

/**
 * One task's runs of a day. `items` is the number of finished units of work, as the runs reported them.
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
 * A recorded swap. `tx_status` and the two scores exist because the site's clients read them.
 *
 * It counts at `burn_block_time`, that of its Bitcoin block, and happened at `block_time`, that of its Stacks
 * block.
 * `source` is what found it: a submission of the agent, the service itself (cron), or a push of Chainhook.
 * `excess` is why the swap has no value: at the prices of its time, it was worth more than a pool can pay.
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
 *   excess?: string | null,
 *   block_time?: number | null,
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
 * The number of callers that are waiting for a permit: those of a `task`, and those of a visitor's `request`.
 *
 * @typedef {{
 *   task: number,
 *   request: number,
 * }} WaitingCallers
 */

export {}; // makes this a module: without it, no other module can import a type
