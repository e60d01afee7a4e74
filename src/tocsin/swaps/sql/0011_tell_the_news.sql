-- What was refused of an agent, newest first, is asked for by the agent.
CREATE INDEX refusals_by_sender ON refusals (sender, refused_at);

-- What changed, in the order in which it was written: for those who watch. Numbers are never used again.
CREATE TABLE news (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  kind TEXT NOT NULL CHECK (kind IN ('counted', 'withdrawn', 'refused')),
  txid TEXT NOT NULL,
  sender TEXT NOT NULL
);

CREATE TRIGGER news_of_swap AFTER INSERT ON swaps BEGIN
  INSERT INTO news (kind, txid, sender) VALUES ('counted', new.txid, new.sender);
END;

CREATE TRIGGER news_of_withdrawal AFTER DELETE ON swaps BEGIN
  INSERT INTO news (kind, txid, sender) VALUES ('withdrawn', old.txid, old.sender);
END;

CREATE TRIGGER news_of_refusal AFTER INSERT ON refusals BEGIN
  INSERT INTO news (kind, txid, sender) VALUES ('refused', new.txid, new.sender);
END;
