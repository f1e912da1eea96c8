-- A provider that says who has signed out there names their session. Of sign-ins from before, it is not known.
alter table sign_in add column sid text;
