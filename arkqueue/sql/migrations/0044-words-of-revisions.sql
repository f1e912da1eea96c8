-- Revisions are found by words of their messages and authors, however old they are.

create function words_of(author text, message text) returns tsvector language sql immutable parallel safe as $$
    select to_tsvector('simple', translate(left(author || ' ' || message, 10000), '!"#$%&''()*+,-./:;<=>?@[\]^_`{|}~', repeat(' ', 32)))
$$;
create index revision_words on revision using gin (words_of(author, message));
