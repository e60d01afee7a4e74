"""The durable object with one alarm. It knows tasks and their contexts, but no particular upstream.

scheduler_do.py   THE OBJECT: alarm, status, refresh, pause, history, audit, request jobs
slots.py          which tasks are due, and when to ring next
task.py           what a task is, what its run is given, and what it returns
run.py            one run: bounded by its time slice, isolated, recorded
upstreams.py      the limiters and clients of all upstreams, and the cadences that their budgets allow
state.py          what the object stores: a record per task, and one of its own
history.py        the runs, the totals of each day, and the newest events for watchers
health.py         the health of the tasks and of the service, in one word and in sentences
alerts.py         which alerts to send, and when, and who sends them
watch.py          monitors the process, for `/readyz`
audit.py          the actions of operators
client.py         typed calls to the object; types.py has the shapes
config.py         what the platforms pass in
"""
