-- Fields in names of locks (design 5.25): a task whose field has no value fails without an attempt, and says why.

alter table task add column fault text;
