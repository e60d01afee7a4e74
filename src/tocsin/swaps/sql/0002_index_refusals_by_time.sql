-- What was refused of late, by reason, is counted whenever an operator looks: by the index alone.
CREATE INDEX refusals_by_time ON refusals (refused_at, code);
