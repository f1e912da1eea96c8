-- Followers of a log are told that it has grown, instead of asking for that.
alter table attempt add column followed_until timestamptz;
