-- The globs of tracked branches are those of workflow files: * stays inside a part of a name, ** does not. So far * went across.
update archive set settings = jsonb_set(settings, '{branches}', (
    select jsonb_agg(regexp_replace(glob, '\*+', '**', 'g') order by place)
    from jsonb_array_elements_text(settings->'branches') with ordinality g(glob, place)))
where kind = 'git' and settings->>'branches' like '%*%';
