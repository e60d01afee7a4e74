"""Every threshold of the flags, in one place. `docs/fair-play.md` explains each; a test compares the two."""

# Churn: trades there and back that end where they began.
CHURN_WINDOW_S = 3_600  # between the two, by burn block time
CHURN_TRADES_MIN = 8  # that went there and back
CHURN_SHARE = 2  # one part in this many of the volume went there and back: half
CHURN_GAIN = 1_000  # an agent that earned more than one part in this many of it has not churned: 0.1 %
TURNOVER_MAX = 20  # times the capital used; above it, the whole volume must have earned that gain

# Ring: two agents that trade the same amounts.
RING_WINDOW_S = 3_600  # either way, by burn block time
RING_TOLERANCE = 50  # one part in this many, of both amounts: 2 %
RING_MATCHES_MIN = 5  # of trades that mirror each other, or of different amounts in the same direction
RING_SHARE = 5  # one part in this many of the volume of the agent that traded less: a fifth
RING_TRADES_MAX = 50  # largest trades of each agent that are compared

# Wallets with the same first funder.
FUNDER_AGENTS_MAX = 8  # a wallet that funded more agents may be an exchange, a faucet or the site itself

# Trades below the `dust_usd` of the rules.
DUST_TRADES_MIN = 10
DUST_SHARE = 2  # one part in this many of the trades: half

EVIDENCE_MAX = 5  # transactions that a flag names
