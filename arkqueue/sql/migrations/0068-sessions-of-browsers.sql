-- Persons see where they are signed in. Of sign-ins from before, neither is known.
alter table sign_in add column begun_at timestamptz, add column browser text not null default '';
alter table sign_in alter column begun_at set default clock_timestamp();
