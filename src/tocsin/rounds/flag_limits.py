"""Every threshold of the flags, in one place. `docs/fair-play.md` explains each; a test compares the two."""

# Churn: trades there and back that end where they began.
CHURN_WINDOW_S = 3_600  # between the two, by burn block time
CHURN_TRADES_MIN = 8  # that went there and back
CHURN_SHARE = 2  # one part in so many of the volume went there and back: half
CHURN_GAIN = 1_000  # who earned more than one part in so many of it has traded, not churned: 0.1 %
TURNOVER_MAX = 20  # times the capital used; above it, the same gain is asked of the whole volume

# Ring: two agents that trade the same amounts.
RING_WINDOW_S = 3_600  # either way, by burn block time
RING_TOLERANCE = 50  # one part in so many, of both amounts: 2 %
RING_MATCHES_MIN = 5  # of trades that mirror each other, or of different amounts in the same direction
RING_SHARE = 5  # one part in so many of the volume of the one who traded less: a fifth
RING_TRADES_MAX = 50  # of each agent are compared, the largest

# Wallets with the same first funder.
FUNDER_AGENTS_MAX = 8  # a wallet that funded more agents may be an exchange, a faucet or the site itself

# Trades below the `dust_usd` of the rules.
DUST_TRADES_MIN = 10
DUST_SHARE = 2  # one part in so many of the trades: half

EVIDENCE_MAX = 5  # transactions that a flag names
