-- The globs of tracked branches are those of workflow files: * stays inside a part of a name, ** does not. So far * went across, and so did ? and [0-9].
-- A run of stars before a slash becomes ***, as **/ would match nothing at all as well: */x did not match x. What ? and [ ] matched cannot be said in the new globs,
-- so the branches that are tracked today are named beside them. No branch's name can hold a character of a glob.
update archive a set settings = jsonb_set(settings, '{branches}', (
    select jsonb_agg(glob order by place, glob)
    from (
        select place, regexp_replace(regexp_replace(glob, '\*+(?!/)(?!\*)', '**', 'g'), '\*+/', '***/', 'g') as glob
        from jsonb_array_elements_text(a.settings->'branches') with ordinality g(glob, place)
        union all
        select 2147483647, b.name from branch b
        where b.archive_id = a.id and b.deleted_at is null and a.settings @? '$.branches[*] ? (@ like_regex "[?[]")' and not a.settings->'branches' ? b.name) globs))
where kind = 'git' and settings @? '$.branches[*] ? (@ like_regex "[*?[]")';
