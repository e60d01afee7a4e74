"""The durable object with one alarm: it knows tasks and their contexts, and no upstream in particular.

scheduler_do.py   THE OBJECT: alarm, status, refresh, pause, request jobs
slots.py          which tasks are due, and when to ring next; schedules.py asks it about the state
task.py           what a task is, and what a run gives back
work_context.py   what a run or a request job is given
run.py            one run: bounded by its time slice, isolated, recorded
upstream_set.py   the limiters and clients of all upstreams, and what cadence they afford
state.py          what the object stores; upgrades.py brings the state of an older release up to date
status.py         `status()` out of all this
service_health.py how the tasks and the service are, in one word and in sentences
health_watch.py   keeps an eye on the process, for `/readyz`
alerts.py         what to tell the outside, and when
alert_sender.py   tells it of the tasks; process_alerts.py tells it of the process
events.py         the newest events, for those who watch
config.py         what the platforms hand in
"""
