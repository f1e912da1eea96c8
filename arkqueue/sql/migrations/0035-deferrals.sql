-- A deferral lasts until the task's `deadline` (design 5.28), which begins when an attempt ends with 75 for the first time.

alter table task add column deferred_at timestamptz;
