"""The durable object with one alarm. It knows tasks and their contexts, but no particular upstream.

scheduler_do.py   THE OBJECT: alarm, status, refresh, pause, request jobs
slots.py          which tasks are due, and when to ring next; schedules.py builds its input from the state
task.py           what a task is, and what a run returns
work_context.py   what a run or a request job is given
run.py            one run: bounded by its time slice, isolated, recorded
upstream_set.py   the limiters and clients of all upstreams, and the cadences that their budgets allow
state.py          what the object stores; upgrades.py brings the state of an older release up to date
status.py         builds `status()` from all of these
service_health.py the health of the tasks and of the service, in one word and in sentences
health_watch.py   monitors the process, for `/readyz`
alerts.py         which alerts to send, and when
alert_sender.py   sends alerts about the tasks; process_alerts.py sends those about the process
events.py         the newest events, for watchers
config.py         what the platforms pass in
"""
