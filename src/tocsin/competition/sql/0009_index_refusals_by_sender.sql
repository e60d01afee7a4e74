-- What was refused of an agent, newest first, is asked for by the agent.
CREATE INDEX refusals_by_sender ON refusals (sender, refused_at);
