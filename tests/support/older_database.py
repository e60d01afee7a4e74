"""The competition's database as an older release left it."""

import sqlite3
from contextlib import closing
from pathlib import Path

from holdfast.local.migrations import load
from tocsin.swaps import COMPETITION_MIGRATIONS

_UNDO = """
DROP VIEW pair_totals_recounted;
CREATE VIEW pair_totals_recounted AS
SELECT
  sender, token_in, token_out, count(*) AS trades,
  sum(CAST(substr(amount_in, -10) AS INTEGER)) AS in_0,
  sum(CAST(substr(amount_in, -20, 10) AS INTEGER)) AS in_1,
  sum(CAST(substr(amount_in, -30, 10) AS INTEGER)) AS in_2,
  sum(CAST(substr(amount_in, -40, 10) AS INTEGER)) AS in_3,
  sum(CAST(substr(amount_out, -10) AS INTEGER)) AS out_0,
  sum(CAST(substr(amount_out, -20, 10) AS INTEGER)) AS out_1,
  sum(CAST(substr(amount_out, -30, 10) AS INTEGER)) AS out_2,
  sum(CAST(substr(amount_out, -40, 10) AS INTEGER)) AS out_3
FROM swaps GROUP BY sender, token_in, token_out;
DROP TRIGGER excess_removed;
DROP TABLE competition_round_excesses;
DROP TABLE excess_swaps;
DROP TABLE funders;
DROP TRIGGER swap_came_after_capture;
DROP TRIGGER swap_went_after_capture;
DROP INDEX swaps_by_time;
DROP TABLE competition_round_rule;
DROP TABLE competition_round_discrepancies;
DROP TABLE competition_round_changes;
DROP TABLE competition_round_files;
DROP TABLE competition_round_flags;
DROP TABLE competition_rewards;
DROP TABLE competition_round_results;
DROP TABLE competition_round_refusals;
DROP TABLE competition_round_swaps;
DROP TABLE competition_round_agents;
DROP TABLE competition_round_decisions;
DROP TABLE competition_round_price_overrides;
DROP TABLE competition_round_price_snapshots;
DROP TABLE competition_rounds;
DROP TABLE agent_days;
DROP TRIGGER swap_unfollowed;
DROP TRIGGER swap_followed;
DROP INDEX swaps_in_order;
DROP TABLE outlays_due;
DROP TABLE outlays;
DROP VIEW sender_values_recounted;
DROP TABLE sender_values;
DROP TABLE swaps_to_value;
DROP TABLE swap_values;
DROP TABLE price_points;
DROP TABLE price_tokens;
DROP TRIGGER news_of_refusal;
DROP TRIGGER news_of_withdrawal;
DROP TRIGGER news_of_swap;
DROP TABLE news;
DROP INDEX refusals_by_sender;
DROP VIEW agent_swap_stats;
ALTER TABLE swaps DROP COLUMN scored_at;
ALTER TABLE swaps DROP COLUMN scored_value;
ALTER TABLE swaps DROP COLUMN tx_status;
ALTER TABLE swaps DROP COLUMN raw_event_json;
DROP INDEX candidates_by_block;
ALTER TABLE candidates DROP COLUMN block_height;
DROP INDEX candidates_by_rank;
ALTER TABLE candidates DROP COLUMN rank;
CREATE INDEX candidates_by_due ON candidates (due_at);
DROP INDEX swaps_by_position;
DROP TABLE nonces;
ALTER TABLE candidates DROP COLUMN contract_id;
DELETE FROM competition_state WHERE key = 'competition_feed';
"""


def downgrade(path: Path, to: int) -> None:
    """Turn the database into what the migrations up to this one produced, keeping its rows."""
    newer = load(COMPETITION_MIGRATIONS)[to:]
    assert [migration.name for migration in newer] == [
        "0004_follow_the_network_list",
        "0005_rank_candidates",
        "0006_keep_legs",
        "0007_know_the_block_of_candidates",
        "0008_keep_history",
        "0009_create_rounds",
        "0010_remember_first_funders",
        "0011_tell_the_news",
        "0012_leave_out_excess",
    ]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executescript(_UNDO)
        connection.execute("DELETE FROM tocsin_migrations WHERE number > ?", (to,))
