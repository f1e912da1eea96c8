-- A database of version 1, with runs under way: what tests/db/test_upgrade.py brings up to date and goes on with.
--
-- Version 1's own code made it, at commit 0b1eba8, and pg_dump wrote it down. Every date but that of a lease is in the past.
-- To make it again, run this with that commit's environment, in its folder, with PYTHONPATH=. (its queue is driven by its tests/builders.py):
--
--     import re, subprocess, tempfile
--     from datetime import UTC, datetime, timedelta
--     from pathlib import Path
--     from arkqueue.db import Database
--     from arkqueue.db.embedded import Embedded
--     from arkqueue.db.migrations import migrate
--     from arkqueue.logs import Logs
--     from arkqueue.model import End, Outcome, Stream
--     from arkqueue.queue import Queue, archives, claim, finish, tokens
--     from tests.builders import HOST, PROCESS, an_archive, faulty
--
--     CENTURY = 3.2e9  # seconds
--     PAPERS = {
--         "index": "depends: [PREV]", "pdf": "depends: [index]\ncancels: [PREV]", "strict": "depends: [PREV]", "after": "depends: [strict]",
--         "upload": "", "box": "depends: [PREV]", "all": "depends: [{task: 'PREV:*', when: settled}]",
--     }
--     SITE = {"build": "cancels: [PREV]", "lint": "", "nightly": "schedule: 0 3 * * *"}
--     DEV = {"deploy": "exclusive: true", "test": ""}
--     ORDERED = {"COMMIT": "depends: [{task: 'PREV:*', when: settled}]", "one": ""}
--
--
--     def drive(queue):
--         claim.register(queue, PROCESS, HOST, "a-host", 8)
--         claim.installation(queue)
--         papers = an_archive(queue)
--
--         def take():
--             for one in claim.claim(queue, PROCESS, HOST, 100, CENTURY):
--                 papers.running[one.task] = one
--
--         papers.commit(PAPERS)
--         take()
--         logs = Logs(queue, PROCESS)
--         writer = logs.open(papers.attempt("index@2"))
--         writer.write(Stream.STDOUT, b"12 pages\n")
--         writer.write(Stream.STDERR, b"caf\xe9\n")
--         logs.flush([writer])
--         claim.started(queue, {papers.attempt("index@2"): 1.0})
--         papers.end("index@2", outputs={"pages": "12"})
--         papers.end("strict@2", 1)
--         papers.end("upload@2", 75)
--         papers.end("all@2")
--         claim.reserve(queue, PROCESS, papers.attempt("box@2"), "sha256:0", 300.0)
--         claim.renew(queue, PROCESS, [papers.attempt("pdf@2")], CENTURY)
--         papers.commit(PAPERS)
--         take()
--         papers.end("index@3")  # pdf@3 asks pdf@2 to stop
--         claim.renew(queue, PROCESS, [papers.attempt("upload@3")], 0.0)
--         papers.cancel("box@3")
--         papers.commit(PAPERS)
--         site = an_archive(queue, "site", branches=("main", "dev"))
--         site.commit(SITE, branch="main")
--         site.commit(SITE, branch="main")
--         site.trigger(2, "lint", branch="main")
--         site.commit(DEV, branch="dev")
--         site.commit(DEV, branch="dev")
--         site.commit(faulty(), branch="dev")
--         ordered = an_archive(queue, "ordered")
--         ordered.commit(ORDERED)
--         ordered.commit(ORDERED)
--         archives.notify(queue, [papers.id], "5")
--         tokens.secrets.token_urlsafe = lambda _: "of-version-1"
--         tokens.create(queue, name="ci", scope=tokens.Scope.OPERATE, archives=["papers"], by="ann")
--         tokens.secrets.token_urlsafe = lambda _: "revoked"
--         tokens.revoke(queue, tokens.create(queue, name="old", scope=tokens.Scope.ADMIN, by="ann")[0].id, "ann")
--
--
--     home = Path(tempfile.mkdtemp(dir="/tmp"))
--     server = Embedded.open(home, durable=False)
--     with Database.open(server.uri) as database:
--         with database.connect() as connection:
--             migrate(connection)
--         drive(Queue(database))
--     pg_dump = server.psql.replace("psql", "pg_dump").split()[0]
--     dump = subprocess.run([pg_dump, "--inserts", "--no-owner", "--no-privileges", server.uri], capture_output=True, text=True, check=True).stdout
--     server.destroy()
--     today = datetime.now(UTC).date()
--     for date in (today, today + timedelta(1)):  # always in the past
--         dump = dump.replace(str(date), f"2026-01-0{5 + (date - today).days}")
--     kept = [line for line in dump.splitlines() if line and not re.match(r"--|\\|SET |SELECT pg_catalog.set_config", line)]
--     print("\n".join(kept))

CREATE TYPE public.edge_kind AS ENUM (
    'depends',
    'cancels',
    'exclusive',
    'stopping'
);
CREATE TYPE public.task_state AS ENUM (
    'waiting',
    'held',
    'ready',
    'running',
    'deferred',
    'completed',
    'failed',
    'rejected',
    'canceled',
    'skipped'
);
CREATE FUNCTION public.is_wanted(definition bigint, archive bigint, in_container boolean) RETURNS boolean
    LANGUAGE plpgsql STABLE COST 1
    AS $$ begin
    return in_container is null or in_container = (
        select runs_in_container(d.body, a.settings) from definition d, archive a where d.id = is_wanted.definition and a.id = is_wanted.archive);
end $$;
CREATE FUNCTION public.key_of(names text[]) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$ select md5(array_to_string(names, ' ')) $$;
CREATE FUNCTION public.meets(settled boolean, crossing boolean, state public.task_state, as_completed boolean, passes boolean) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$ select state = 'completed' or state in ('failed', 'rejected', 'canceled', 'skipped') and (settled or as_completed or crossing and passes) $$;
CREATE FUNCTION public.passes(state public.task_state, waived boolean, root_state public.task_state, root_waived boolean) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$ select state in ('completed', 'canceled') or waived
       or state = 'skipped' and (root_state is null or root_waived or root_state not in ('failed', 'rejected')) $$;
CREATE FUNCTION public.runs_in_container(definition jsonb, settings jsonb) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$ select definition->>'image' is not null or settings->>'image' is not null or (settings->>'process')::boolean is not true $$;
CREATE TABLE public.archive (
    id bigint NOT NULL,
    name text NOT NULL,
    kind text NOT NULL,
    url text NOT NULL,
    repository text NOT NULL,
    uuid text DEFAULT ''::text NOT NULL,
    folder text DEFAULT ''::text NOT NULL,
    settings jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    removed_at timestamp with time zone,
    stopped text,
    trouble text,
    trouble_since timestamp with time zone,
    read_at timestamp with time zone,
    next_read_at timestamp with time zone DEFAULT now() NOT NULL,
    last_ticket bigint DEFAULT 0 NOT NULL,
    CONSTRAINT archive_kind_check CHECK ((kind = ANY (ARRAY['subversion'::text, 'git'::text]))),
    CONSTRAINT archive_name_check CHECK ((name ~ '^[A-Za-z0-9][A-Za-z0-9._-]*(~[0-9]+)?$'::text))
);
ALTER TABLE public.archive ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.archive_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE SEQUENCE public.attempt_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.attempt (
    id bigint DEFAULT nextval('public.attempt_id'::regclass) NOT NULL,
    task_id bigint NOT NULL,
    number integer NOT NULL,
    process text NOT NULL,
    host text NOT NULL,
    lease_until timestamp with time zone NOT NULL,
    claimed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    exit_code integer,
    "end" text,
    message text DEFAULT ''::text NOT NULL,
    outputs jsonb,
    base text,
    outlives interval,
    image text,
    log_bytes bigint DEFAULT 0 NOT NULL,
    log_stdout bigint DEFAULT 0 NOT NULL,
    log_stderr bigint DEFAULT 0 NOT NULL,
    CONSTRAINT attempt_check CHECK (((ended_at IS NULL) = ("end" IS NULL)))
)
WITH (fillfactor='85');
CREATE TABLE public.branch (
    id bigint NOT NULL,
    archive_id bigint NOT NULL,
    name text NOT NULL,
    main boolean DEFAULT false NOT NULL,
    head_id bigint,
    deleted_at timestamp with time zone
);
ALTER TABLE public.branch ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.branch_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.deed (
    id bigint NOT NULL,
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    by text NOT NULL,
    verb text NOT NULL,
    archive_id bigint,
    run_id bigint,
    task_id bigint,
    note text DEFAULT ''::text NOT NULL
);
ALTER TABLE public.deed ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.deed_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.definition (
    id bigint NOT NULL,
    digest bytea NOT NULL,
    body jsonb NOT NULL,
    cancels jsonb DEFAULT '[]'::jsonb NOT NULL
);
ALTER TABLE public.definition ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.definition_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.edge (
    target bigint NOT NULL,
    source bigint NOT NULL,
    kind public.edge_kind NOT NULL,
    settled boolean NOT NULL,
    crossing boolean NOT NULL,
    declared boolean NOT NULL,
    met boolean NOT NULL
)
WITH (fillfactor='85');
CREATE TABLE public.heartbeat (
    id integer DEFAULT 1 NOT NULL,
    beat_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    steady_since timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    CONSTRAINT heartbeat_id_check CHECK ((id = 1))
);
CREATE TABLE public.installation (
    single boolean DEFAULT true NOT NULL,
    id uuid DEFAULT gen_random_uuid() NOT NULL,
    CONSTRAINT installation_single_check CHECK (single)
);
CREATE TABLE public.log_chunk (
    attempt_id bigint NOT NULL,
    "position" bigint NOT NULL,
    stream text NOT NULL,
    at timestamp with time zone NOT NULL,
    data bytea NOT NULL,
    CONSTRAINT log_chunk_stream_check CHECK ((stream = ANY (ARRAY['stdout'::text, 'stderr'::text, 'note'::text])))
);
CREATE SEQUENCE public.notice
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.look (
    archive_id bigint NOT NULL,
    asked bigint DEFAULT nextval('public.notice'::regclass) NOT NULL,
    looked bigint DEFAULT 0 NOT NULL,
    asked_at timestamp with time zone DEFAULT now() NOT NULL,
    revision text
);
CREATE SEQUENCE public.revision_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.revision (
    id bigint DEFAULT nextval('public.revision_id'::regclass) NOT NULL,
    branch_id bigint NOT NULL,
    number bigint NOT NULL,
    name text NOT NULL,
    author text NOT NULL,
    date timestamp with time zone NOT NULL,
    message text NOT NULL,
    origin text,
    generation integer DEFAULT 0 NOT NULL,
    workflow_id bigint NOT NULL,
    baseline boolean DEFAULT false NOT NULL,
    previous text,
    dropped_at timestamp with time zone,
    read_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE SEQUENCE public.run_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.run (
    id bigint DEFAULT nextval('public.run_id'::regclass) NOT NULL,
    archive_id bigint NOT NULL,
    branch_id bigint NOT NULL,
    revision_id bigint NOT NULL,
    number bigint NOT NULL,
    run integer NOT NULL,
    trigger text NOT NULL,
    by text DEFAULT ''::text NOT NULL,
    faults jsonb DEFAULT '[]'::jsonb NOT NULL,
    report_id bigint,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    canceled_at timestamp with time zone,
    canceled_by text,
    deleted_at timestamp with time zone,
    deleted_by text,
    CONSTRAINT run_trigger_check CHECK ((trigger = ANY (ARRAY['commit'::text, 'manual'::text, 'schedule'::text, 'submission'::text])))
);
CREATE TABLE public.schedule (
    id bigint NOT NULL,
    branch_id bigint NOT NULL,
    cron text NOT NULL,
    zone text NOT NULL,
    tasks text[] NOT NULL,
    next_at timestamp with time zone NOT NULL,
    trouble text
);
CREATE TABLE public.schedule_fire (
    branch_id bigint NOT NULL,
    cron text NOT NULL,
    zone text NOT NULL,
    tasks text[] NOT NULL,
    fire_at timestamp with time zone NOT NULL,
    run_id bigint
);
ALTER TABLE public.schedule ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.schedule_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.schema_version (
    version bigint NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE SEQUENCE public.task_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.task (
    id bigint DEFAULT nextval('public.task_id'::regclass) NOT NULL,
    run_id bigint NOT NULL,
    archive_id bigint NOT NULL,
    branch_id bigint NOT NULL,
    number bigint NOT NULL,
    run integer NOT NULL,
    definition_id bigint,
    unmet integer NOT NULL,
    "position" integer NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    deferrals integer DEFAULT 0 NOT NULL,
    losses integer DEFAULT 0 NOT NULL,
    state public.task_state NOT NULL,
    gate boolean NOT NULL,
    cancels boolean DEFAULT false NOT NULL,
    exclusive boolean DEFAULT false NOT NULL,
    fired boolean DEFAULT false NOT NULL,
    waived boolean DEFAULT false NOT NULL,
    as_completed boolean DEFAULT false NOT NULL,
    ticket bigint,
    attempt_id bigint,
    root_id bigint,
    superseded_by bigint,
    due_at timestamp with time zone,
    ready_at timestamp with time zone,
    settled_at timestamp with time zone,
    name text NOT NULL,
    item text DEFAULT ''::text NOT NULL,
    stop text,
    by text,
    CONSTRAINT task_check CHECK (((settled_at IS NULL) = (state = ANY (ARRAY['waiting'::public.task_state, 'held'::public.task_state, 'ready'::public.task_state, 'running'::public.task_state, 'deferred'::public.task_state])))),
    CONSTRAINT task_stop_check CHECK ((stop = ANY (ARRAY['cancel'::text, 'restart'::text])))
)
WITH (fillfactor='85');
CREATE TABLE public.task_manager (
    process text NOT NULL,
    host text NOT NULL,
    hostname text NOT NULL,
    slots integer NOT NULL,
    fault text,
    engine_fault text,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    seen_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    stopped_at timestamp with time zone
);
CREATE TABLE public.task_name (
    branch_id bigint NOT NULL,
    name text NOT NULL
);
CREATE TABLE public.token (
    id bigint NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    scope text NOT NULL,
    archives text[],
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    revoked_at timestamp with time zone,
    CONSTRAINT token_scope_check CHECK ((scope = ANY (ARRAY['hook'::text, 'read'::text, 'operate'::text, 'admin'::text])))
);
ALTER TABLE public.token ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.token_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE SEQUENCE public.turn
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.workflow (
    id bigint NOT NULL,
    digest bytea NOT NULL,
    tasks jsonb NOT NULL,
    faults jsonb NOT NULL
);
ALTER TABLE public.workflow ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.workflow_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
INSERT INTO public.archive OVERRIDING SYSTEM VALUE VALUES (1, 'papers', 'subversion', '/srv/papers', '/srv/papers', '', '', '{"image": null, "users": [], "author": null, "images": [], "process": true, "branches": [], "networks": [], "task_url": null, "process_user": null}', '2026-01-05 07:50:53.599914+00', NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:53.599914+00', 10);
INSERT INTO public.archive OVERRIDING SYSTEM VALUE VALUES (2, 'site', 'git', '/srv/site', '/srv/site', '', '', '{"image": null, "users": [], "author": null, "images": [], "process": true, "branches": ["*"], "networks": [], "task_url": null, "process_user": null}', '2026-01-05 07:50:54.3384+00', NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.3384+00', 15);
INSERT INTO public.archive OVERRIDING SYSTEM VALUE VALUES (3, 'ordered', 'subversion', '/srv/ordered', '/srv/ordered', '', '', '{"image": null, "users": [], "author": null, "images": [], "process": true, "branches": [], "networks": [], "task_url": null, "process_user": null}', '2026-01-05 07:50:54.602085+00', NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.602085+00', 9);
INSERT INTO public.attempt VALUES (3, 7, 1, 'manager-1', 'host-1', '2128-04-20 08:44:13.90213+00', '2026-01-05 07:50:53.902131+00', '2026-01-05 07:50:52.953019+00', '2026-01-05 07:50:53.981171+00', 0, 'exited', '', '{"pages": "12"}', NULL, NULL, NULL, 14, 9, 5);
INSERT INTO public.attempt VALUES (2, 9, 1, 'manager-1', 'host-1', '2128-04-20 08:44:13.90211+00', '2026-01-05 07:50:53.902114+00', NULL, '2026-01-05 07:50:54.040565+00', 1, 'exited', '', NULL, NULL, NULL, NULL, 0, 0, 0);
INSERT INTO public.attempt VALUES (1, 11, 1, 'manager-1', 'host-1', '2128-04-20 08:44:13.901861+00', '2026-01-05 07:50:53.901881+00', NULL, '2026-01-05 07:50:54.117469+00', 75, 'exited', '', NULL, NULL, NULL, NULL, 0, 0, 0);
INSERT INTO public.attempt VALUES (4, 13, 1, 'manager-1', 'host-1', '2128-04-20 08:44:13.902142+00', '2026-01-05 07:50:53.902143+00', NULL, '2026-01-05 07:50:54.144879+00', 0, 'exited', '', NULL, NULL, NULL, NULL, 0, 0, 0);
INSERT INTO public.attempt VALUES (5, 12, 1, 'manager-1', 'host-1', '2128-04-20 08:44:13.902152+00', '2026-01-05 07:50:53.902153+00', NULL, NULL, NULL, NULL, '', NULL, NULL, '00:05:00', 'sha256:0', 0, 0, 0);
INSERT INTO public.attempt VALUES (6, 8, 1, 'manager-1', 'host-1', '2128-04-20 08:44:14.154916+00', '2026-01-05 07:50:54.006189+00', NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, 0, 0, 0);
INSERT INTO public.attempt VALUES (7, 18, 1, 'manager-1', 'host-1', '2128-04-20 08:44:14.185733+00', '2026-01-05 07:50:54.185752+00', NULL, '2026-01-05 07:50:54.195228+00', 0, 'exited', '', NULL, '2', NULL, NULL, 0, 0, 0);
INSERT INTO public.attempt VALUES (8, 22, 1, 'manager-1', 'host-1', '2026-01-05 07:50:54.244009+00', '2026-01-05 07:50:54.185797+00', NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, 0, 0, 0);
INSERT INTO public.branch OVERRIDING SYSTEM VALUE VALUES (1, 1, '', true, 4, NULL);
INSERT INTO public.branch OVERRIDING SYSTEM VALUE VALUES (2, 2, 'main', true, 8, NULL);
INSERT INTO public.branch OVERRIDING SYSTEM VALUE VALUES (3, 2, 'dev', false, 12, NULL);
INSERT INTO public.branch OVERRIDING SYSTEM VALUE VALUES (4, 3, '', true, 15, NULL);
INSERT INTO public.deed OVERRIDING SYSTEM VALUE VALUES (1, '2026-01-05 07:50:54.280659+00', 'ann', 'cancel', 1, 3, 23, '');
INSERT INTO public.deed OVERRIDING SYSTEM VALUE VALUES (2, '2026-01-05 07:50:54.725238+00', 'ann', 'create token', NULL, NULL, NULL, '1 ci (operate)');
INSERT INTO public.deed OVERRIDING SYSTEM VALUE VALUES (3, '2026-01-05 07:50:54.726123+00', 'ann', 'create token', NULL, NULL, NULL, '2 old (admin)');
INSERT INTO public.deed OVERRIDING SYSTEM VALUE VALUES (4, '2026-01-05 07:50:54.728697+00', 'ann', 'revoke token', NULL, NULL, NULL, '2 old');
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (1, '\x214f6ef7723c64d453f362afa2ec3be04e6a1ae5aa39dff9f686afc9aed5fffd', '{"line": 14, "name": "upload", "path": "_workflows/test.yaml", "command": "true"}', '[]');
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (2, '\x499062107f90003bb979e2b97a12f970bba0bf80abbe1ef8d5599f83394b22dd', '{"line": 4, "name": "pdf", "path": "_workflows/test.yaml", "cancels": [{"task": null, "previous": true}], "command": "true", "depends": [{"task": "index"}]}', '[{"here": false, "name": "pdf", "unstarted": false}]');
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (3, '\x6af80f21de5c3d285bb308d784c646b152fb0b8dfc7b3d764eb7570b87ae47e0', '{"line": 1, "name": "index", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": null, "previous": true}]}', '[]');
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (4, '\xa0443abdd7bc2cade52a0781d575f79ae87a7a178152cba42ff820afa67e98df', '{"line": 16, "name": "box", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": null, "previous": true}]}', '[]');
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (5, '\xad8b3b3307aecbf2f6df4fa900558678ed433edc174894e5583676be15b03d0d', '{"line": 11, "name": "after", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": "strict"}]}', '[]');
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (6, '\xd2cf181774d85ee85d58ed7cd89312cb4d90641654f1065d6e5c747ee84f36bd', '{"line": 19, "name": "all", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": "*", "when": "settled", "previous": true}]}', '[]');
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (7, '\xdf47aab430a3adadb2f30f6716544342937bdb8d37255067b8978e73bf25b30a', '{"line": 8, "name": "strict", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": null, "previous": true}]}', '[]');
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (8, '\x197cc897c2ba5aba8baeb931086a8566c6b5877d425083f00a4e11e888df02a9', '{"line": 1, "name": "build", "path": "_workflows/test.yaml", "cancels": [{"task": null, "previous": true}], "command": "true"}', '[{"here": false, "name": "build", "unstarted": false}]');
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (9, '\x96443fe7717355e10f41a38d6633bf64188f3d4cb0aa5aa84479b3dabf3033cc', '{"line": 4, "name": "lint", "path": "_workflows/test.yaml", "command": "true"}', '[]');
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (10, '\x833064b70be57a9edc2bcd6173c27497d929be14b58599ec51d5d85593922113', '{"line": 4, "name": "test", "path": "_workflows/test.yaml", "command": "true"}', '[]');
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (11, '\xd4be2bac29e4283f000040ecffb8424d2df5bbad0cad1709ab4693cf1d5e1d72', '{"line": 1, "name": "deploy", "path": "_workflows/test.yaml", "command": "true", "exclusive": true}', '[]');
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (12, '\x034f92d52fd60b8c86029a4e8cc15b48d1cedb0f97c1cafeabdf229fba0c47c7', '{"line": 3, "name": "one", "path": "_workflows/test.yaml", "command": "true"}', '[]');
INSERT INTO public.edge VALUES (5, 1, 'depends', false, true, false, true);
INSERT INTO public.edge VALUES (7, 5, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (8, 5, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (9, 5, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (10, 5, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (10, 9, 'depends', false, false, true, false);
INSERT INTO public.edge VALUES (11, 5, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (12, 5, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (13, 5, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (6, 1, 'depends', true, true, true, true);
INSERT INTO public.edge VALUES (13, 6, 'depends', false, false, true, true);
INSERT INTO public.edge VALUES (8, 7, 'depends', false, false, true, true);
INSERT INTO public.edge VALUES (16, 5, 'depends', false, true, false, true);
INSERT INTO public.edge VALUES (18, 16, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (18, 7, 'depends', false, true, true, true);
INSERT INTO public.edge VALUES (19, 16, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (19, 8, 'cancels', false, true, true, true);
INSERT INTO public.edge VALUES (20, 16, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (20, 9, 'depends', false, true, true, false);
INSERT INTO public.edge VALUES (21, 16, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (21, 20, 'depends', false, false, true, false);
INSERT INTO public.edge VALUES (22, 16, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (23, 16, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (23, 12, 'depends', false, true, true, false);
INSERT INTO public.edge VALUES (24, 16, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (17, 5, 'depends', true, true, true, true);
INSERT INTO public.edge VALUES (17, 10, 'depends', true, true, true, true);
INSERT INTO public.edge VALUES (17, 13, 'depends', true, true, true, true);
INSERT INTO public.edge VALUES (17, 12, 'depends', true, true, true, false);
INSERT INTO public.edge VALUES (17, 7, 'depends', true, true, true, true);
INSERT INTO public.edge VALUES (17, 8, 'depends', true, true, true, false);
INSERT INTO public.edge VALUES (17, 9, 'depends', true, true, true, true);
INSERT INTO public.edge VALUES (17, 11, 'depends', true, true, true, false);
INSERT INTO public.edge VALUES (24, 17, 'depends', false, false, true, false);
INSERT INTO public.edge VALUES (19, 18, 'depends', false, false, true, true);
INSERT INTO public.edge VALUES (19, 8, 'stopping', true, true, false, false);
INSERT INTO public.edge VALUES (27, 16, 'depends', false, true, false, true);
INSERT INTO public.edge VALUES (29, 27, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (29, 18, 'depends', false, true, true, true);
INSERT INTO public.edge VALUES (30, 27, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (30, 29, 'depends', false, false, true, false);
INSERT INTO public.edge VALUES (30, 19, 'cancels', false, true, true, true);
INSERT INTO public.edge VALUES (31, 27, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (31, 20, 'depends', false, true, true, false);
INSERT INTO public.edge VALUES (32, 27, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (32, 31, 'depends', false, false, true, false);
INSERT INTO public.edge VALUES (33, 27, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (34, 27, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (34, 23, 'depends', false, true, true, true);
INSERT INTO public.edge VALUES (35, 27, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (28, 16, 'depends', true, true, true, true);
INSERT INTO public.edge VALUES (28, 21, 'depends', true, true, true, false);
INSERT INTO public.edge VALUES (28, 24, 'depends', true, true, true, false);
INSERT INTO public.edge VALUES (28, 23, 'depends', true, true, true, true);
INSERT INTO public.edge VALUES (28, 18, 'depends', true, true, true, true);
INSERT INTO public.edge VALUES (28, 19, 'depends', true, true, true, false);
INSERT INTO public.edge VALUES (28, 20, 'depends', true, true, true, false);
INSERT INTO public.edge VALUES (28, 22, 'depends', true, true, true, false);
INSERT INTO public.edge VALUES (35, 28, 'depends', false, false, true, false);
INSERT INTO public.edge VALUES (28, 12, 'depends', true, true, false, false);
INSERT INTO public.edge VALUES (34, 12, 'depends', false, true, false, false);
INSERT INTO public.edge VALUES (46, 38, 'depends', false, true, false, true);
INSERT INTO public.edge VALUES (47, 46, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (48, 46, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (53, 46, 'depends', false, true, false, true);
INSERT INTO public.edge VALUES (54, 53, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (54, 47, 'cancels', false, true, true, true);
INSERT INTO public.edge VALUES (55, 53, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (60, 46, 'depends', false, true, false, true);
INSERT INTO public.edge VALUES (61, 60, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (67, 42, 'depends', false, true, false, true);
INSERT INTO public.edge VALUES (68, 67, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (69, 67, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (73, 67, 'depends', false, true, false, true);
INSERT INTO public.edge VALUES (74, 73, 'depends', false, false, false, false);
INSERT INTO public.edge VALUES (75, 73, 'depends', false, false, false, false);
INSERT INTO public.edge VALUES (73, 68, 'exclusive', true, true, false, false);
INSERT INTO public.edge VALUES (79, 73, 'depends', false, true, false, false);
INSERT INTO public.edge VALUES (79, 74, 'exclusive', true, true, false, false);
INSERT INTO public.edge VALUES (87, 83, 'depends', false, true, false, true);
INSERT INTO public.edge VALUES (88, 83, 'depends', true, true, true, true);
INSERT INTO public.edge VALUES (87, 88, 'depends', false, false, true, true);
INSERT INTO public.edge VALUES (89, 87, 'depends', false, false, false, true);
INSERT INTO public.edge VALUES (93, 87, 'depends', false, true, false, true);
INSERT INTO public.edge VALUES (94, 87, 'depends', true, true, true, true);
INSERT INTO public.edge VALUES (94, 89, 'depends', true, true, true, false);
INSERT INTO public.edge VALUES (93, 94, 'depends', false, false, true, false);
INSERT INTO public.edge VALUES (95, 93, 'depends', false, false, false, false);
INSERT INTO public.heartbeat VALUES (1, '2026-01-05 07:50:53.55801+00', '2026-01-05 07:50:53.55801+00');
INSERT INTO public.installation VALUES (true, '3a8cd5d9-acf7-474b-9b28-f6ceaa985258');
INSERT INTO public.log_chunk VALUES (3, 0, 'stdout', '2026-01-05 07:50:53.931875+00', '\x31322070616765730a');
INSERT INTO public.log_chunk VALUES (3, 9, 'stderr', '2026-01-05 07:50:53.93191+00', '\x636166e90a');
INSERT INTO public.look VALUES (1, 1, 0, '2026-01-05 07:50:54.71112+00', '5');
INSERT INTO public.revision VALUES (1, 1, 1, '1', 'ann', '2026-01-01 00:00:00+00', 'change 1', NULL, 0, 1, true, NULL, NULL, '2026-01-05 07:50:53.599914+00');
INSERT INTO public.revision VALUES (2, 1, 2, '2', 'ann', '2026-01-01 00:00:00+00', 'change 2', NULL, 0, 2, false, '1', NULL, '2026-01-05 07:50:53.75122+00');
INSERT INTO public.revision VALUES (3, 1, 3, '3', 'ann', '2026-01-01 00:00:00+00', 'change 3', NULL, 0, 2, false, '2', NULL, '2026-01-05 07:50:54.157374+00');
INSERT INTO public.revision VALUES (4, 1, 4, '4', 'ann', '2026-01-01 00:00:00+00', 'change 4', NULL, 0, 2, false, '3', NULL, '2026-01-05 07:50:54.286365+00');
INSERT INTO public.revision VALUES (5, 2, 1, 'main1', 'ann', '2026-01-01 00:00:00+00', 'change 1', NULL, 0, 1, true, NULL, NULL, '2026-01-05 07:50:54.3384+00');
INSERT INTO public.revision VALUES (6, 3, 1, 'dev1', 'ann', '2026-01-01 00:00:00+00', 'change 1', NULL, 0, 1, true, NULL, NULL, '2026-01-05 07:50:54.3384+00');
INSERT INTO public.revision VALUES (7, 2, 2, 'main2', 'ann', '2026-01-01 00:00:00+00', 'change 2', NULL, 0, 5, false, 'main1', NULL, '2026-01-05 07:50:54.381023+00');
INSERT INTO public.revision VALUES (8, 2, 3, 'main3', 'ann', '2026-01-01 00:00:00+00', 'change 3', NULL, 0, 5, false, 'main2', NULL, '2026-01-05 07:50:54.423081+00');
INSERT INTO public.revision VALUES (10, 3, 2, 'dev2', 'ann', '2026-01-01 00:00:00+00', 'change 2', NULL, 0, 6, false, 'dev1', NULL, '2026-01-05 07:50:54.549275+00');
INSERT INTO public.revision VALUES (11, 3, 3, 'dev3', 'ann', '2026-01-01 00:00:00+00', 'change 3', NULL, 0, 6, false, 'dev2', NULL, '2026-01-05 07:50:54.570889+00');
INSERT INTO public.revision VALUES (12, 3, 4, 'dev4', 'ann', '2026-01-01 00:00:00+00', 'change 4', NULL, 0, 7, false, 'dev3', NULL, '2026-01-05 07:50:54.587023+00');
INSERT INTO public.revision VALUES (13, 4, 1, '1', 'ann', '2026-01-01 00:00:00+00', 'change 1', NULL, 0, 1, true, NULL, NULL, '2026-01-05 07:50:54.602085+00');
INSERT INTO public.revision VALUES (14, 4, 2, '2', 'ann', '2026-01-01 00:00:00+00', 'change 2', NULL, 0, 9, false, '1', NULL, '2026-01-05 07:50:54.636549+00');
INSERT INTO public.revision VALUES (15, 4, 3, '3', 'ann', '2026-01-01 00:00:00+00', 'change 3', NULL, 0, 9, false, '2', NULL, '2026-01-05 07:50:54.692451+00');
INSERT INTO public.run VALUES (1, 1, 1, 1, 1, 1, 'commit', 'ann', '[]', NULL, '2026-01-05 07:50:53.599914+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (2, 1, 1, 2, 2, 1, 'commit', 'ann', '[]', 14, '2026-01-05 07:50:53.75122+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (3, 1, 1, 3, 3, 1, 'commit', 'ann', '[]', 25, '2026-01-05 07:50:54.157374+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (4, 1, 1, 4, 4, 1, 'commit', 'ann', '[]', 36, '2026-01-05 07:50:54.286365+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (5, 2, 2, 5, 1, 1, 'commit', 'ann', '[]', NULL, '2026-01-05 07:50:54.3384+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (6, 2, 3, 6, 1, 1, 'commit', 'ann', '[]', NULL, '2026-01-05 07:50:54.3384+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (7, 2, 2, 7, 2, 1, 'commit', 'ann', '[]', 49, '2026-01-05 07:50:54.381023+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (8, 2, 2, 8, 3, 1, 'commit', 'ann', '[]', 56, '2026-01-05 07:50:54.423081+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (9, 2, 2, 7, 2, 2, 'manual', '', '[]', 62, '2026-01-05 07:50:54.502853+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (10, 2, 3, 10, 2, 1, 'commit', 'ann', '[]', 70, '2026-01-05 07:50:54.549275+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (11, 2, 3, 11, 3, 1, 'commit', 'ann', '[]', 76, '2026-01-05 07:50:54.570889+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (12, 2, 3, 12, 4, 1, 'commit', 'ann', '[{"line": 1, "path": "_workflows/test.yaml", "word": "", "column": 1, "message": "a fault", "suggestion": ""}]', 80, '2026-01-05 07:50:54.587023+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (13, 3, 4, 13, 1, 1, 'commit', 'ann', '[]', NULL, '2026-01-05 07:50:54.602085+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (14, 3, 4, 14, 2, 1, 'commit', 'ann', '[]', 90, '2026-01-05 07:50:54.636549+00', NULL, NULL, NULL, NULL);
INSERT INTO public.run VALUES (15, 3, 4, 15, 3, 1, 'commit', 'ann', '[]', 96, '2026-01-05 07:50:54.692451+00', NULL, NULL, NULL, NULL);
INSERT INTO public.schedule OVERRIDING SYSTEM VALUE VALUES (1, 2, '0 3 * * *', 'UTC', '{nightly}', '2026-01-06 03:00:00+00', NULL);
INSERT INTO public.schema_version VALUES (1, 'schema.sql 1b8e8be470e2c292', '2026-01-05 07:50:52.876795+00');
INSERT INTO public.task VALUES (1, 1, 1, 1, 1, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:53.710865+00', 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (5, 2, 1, 1, 2, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:53.798797+00', 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (6, 2, 1, 1, 2, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:53.834248+00', '2026-01-05 07:50:53.834248+00', 'PREV:*:settled', '', NULL, NULL);
INSERT INTO public.task VALUES (12, 2, 1, 1, 2, 1, 4, 0, 6, 1, 0, 0, 0, 'running', false, false, false, false, false, false, 4, 5, NULL, NULL, NULL, '2026-01-05 07:50:53.865781+00', NULL, 'box', '', NULL, NULL);
INSERT INTO public.task VALUES (7, 2, 1, 1, 2, 1, 3, 0, 1, 1, 0, 0, 0, 'completed', false, false, false, false, false, false, 1, 3, NULL, NULL, NULL, '2026-01-05 07:50:53.865766+00', '2026-01-05 07:50:53.981108+00', 'index', '', NULL, NULL);
INSERT INTO public.task VALUES (53, 8, 2, 2, 3, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.442285+00', 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (9, 2, 1, 1, 2, 1, 7, 0, 3, 1, 1, 0, 0, 'failed', false, false, false, false, false, false, 2, 2, NULL, NULL, NULL, '2026-01-05 07:50:53.865754+00', '2026-01-05 07:50:54.040497+00', 'strict', '', NULL, NULL);
INSERT INTO public.task VALUES (10, 2, 1, 1, 2, 1, 5, 1, 4, 0, 0, 0, 0, 'skipped', false, false, false, false, false, false, NULL, NULL, 9, NULL, NULL, NULL, '2026-01-05 07:50:54.068355+00', 'after', '', NULL, NULL);
INSERT INTO public.task VALUES (19, 3, 1, 1, 3, 1, 2, 1, 2, 0, 0, 0, 0, 'waiting', false, true, false, true, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'pdf', '', NULL, NULL);
INSERT INTO public.task VALUES (11, 2, 1, 1, 2, 1, 1, 0, 5, 1, 0, 1, 0, 'deferred', false, false, false, false, false, false, 3, 1, NULL, NULL, '2026-01-05 07:51:54.117291+00', '2026-01-05 07:50:53.865639+00', NULL, 'upload', '', NULL, NULL);
INSERT INTO public.task VALUES (13, 2, 1, 1, 2, 1, 6, 0, 7, 1, 0, 0, 0, 'completed', false, false, false, false, false, false, 5, 4, NULL, NULL, NULL, '2026-01-05 07:50:53.865774+00', '2026-01-05 07:50:54.144793+00', 'all', '', NULL, NULL);
INSERT INTO public.task VALUES (14, 2, 1, 1, 2, 1, NULL, 3, 8, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL);
INSERT INTO public.task VALUES (16, 3, 1, 1, 3, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.170335+00', 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (17, 3, 1, 1, 3, 1, NULL, 3, 0, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'PREV:*:settled', '', NULL, NULL);
INSERT INTO public.task VALUES (20, 3, 1, 1, 3, 1, 7, 1, 3, 0, 0, 0, 0, 'waiting', false, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'strict', '', NULL, NULL);
INSERT INTO public.task VALUES (21, 3, 1, 1, 3, 1, 5, 1, 4, 0, 0, 0, 0, 'waiting', false, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'after', '', NULL, NULL);
INSERT INTO public.task VALUES (24, 3, 1, 1, 3, 1, 6, 1, 7, 0, 0, 0, 0, 'waiting', false, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'all', '', NULL, NULL);
INSERT INTO public.task VALUES (22, 3, 1, 1, 3, 1, 1, 0, 5, 1, 0, 0, 0, 'running', false, false, false, false, false, false, 8, 8, NULL, NULL, NULL, '2026-01-05 07:50:54.179279+00', NULL, 'upload', '', NULL, NULL);
INSERT INTO public.task VALUES (18, 3, 1, 1, 3, 1, 3, 0, 1, 1, 0, 0, 0, 'completed', false, false, false, false, false, false, 7, 7, NULL, NULL, NULL, '2026-01-05 07:50:54.179228+00', '2026-01-05 07:50:54.195154+00', 'index', '', NULL, NULL);
INSERT INTO public.task VALUES (8, 2, 1, 1, 2, 1, 2, 0, 2, 1, 0, 0, 0, 'running', false, true, false, true, false, false, 6, 6, NULL, 19, NULL, '2026-01-05 07:50:53.990988+00', NULL, 'pdf', '', 'cancel', NULL);
INSERT INTO public.task VALUES (23, 3, 1, 1, 3, 1, 4, 1, 6, 0, 0, 0, 0, 'canceled', false, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.267379+00', 'box', '', NULL, 'ann');
INSERT INTO public.task VALUES (25, 3, 1, 1, 3, 1, NULL, 5, 8, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL);
INSERT INTO public.task VALUES (27, 4, 1, 1, 4, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.310129+00', 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (28, 4, 1, 1, 4, 1, NULL, 6, 0, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'PREV:*:settled', '', NULL, NULL);
INSERT INTO public.task VALUES (30, 4, 1, 1, 4, 1, 2, 1, 2, 0, 0, 0, 0, 'waiting', false, true, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'pdf', '', NULL, NULL);
INSERT INTO public.task VALUES (31, 4, 1, 1, 4, 1, 7, 1, 3, 0, 0, 0, 0, 'waiting', false, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'strict', '', NULL, NULL);
INSERT INTO public.task VALUES (32, 4, 1, 1, 4, 1, 5, 1, 4, 0, 0, 0, 0, 'waiting', false, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'after', '', NULL, NULL);
INSERT INTO public.task VALUES (34, 4, 1, 1, 4, 1, 4, 1, 6, 0, 0, 0, 0, 'waiting', false, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'box', '', NULL, NULL);
INSERT INTO public.task VALUES (35, 4, 1, 1, 4, 1, 6, 1, 7, 0, 0, 0, 0, 'waiting', false, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'all', '', NULL, NULL);
INSERT INTO public.task VALUES (36, 4, 1, 1, 4, 1, NULL, 7, 8, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL);
INSERT INTO public.task VALUES (33, 4, 1, 1, 4, 1, 1, 0, 5, 0, 0, 0, 0, 'ready', false, false, false, false, false, false, 10, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.323596+00', NULL, 'upload', '', NULL, NULL);
INSERT INTO public.task VALUES (29, 4, 1, 1, 4, 1, 3, 0, 1, 0, 0, 0, 0, 'ready', false, false, false, false, false, false, 9, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.323655+00', NULL, 'index', '', NULL, NULL);
INSERT INTO public.task VALUES (38, 5, 2, 2, 1, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.356655+00', 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (42, 6, 2, 3, 1, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.367706+00', 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (46, 7, 2, 2, 2, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.405876+00', 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (48, 7, 2, 2, 2, 1, 9, 0, 2, 0, 0, 0, 0, 'ready', false, false, false, false, false, false, 10, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.416728+00', NULL, 'lint', '', NULL, NULL);
INSERT INTO public.task VALUES (56, 8, 2, 2, 3, 1, NULL, 2, 3, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL);
INSERT INTO public.task VALUES (60, 9, 2, 2, 2, 2, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.534837+00', 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (47, 7, 2, 2, 2, 1, 8, 0, 1, 0, 0, 0, 0, 'canceled', false, true, false, true, false, false, 9, NULL, NULL, 54, NULL, '2026-01-05 07:50:54.416784+00', '2026-01-05 07:50:54.470736+00', 'build', '', NULL, NULL);
INSERT INTO public.task VALUES (54, 8, 2, 2, 3, 1, 8, 0, 1, 0, 0, 0, 0, 'ready', false, true, false, true, false, false, 11, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.480791+00', NULL, 'build', '', NULL, NULL);
INSERT INTO public.task VALUES (55, 8, 2, 2, 3, 1, 9, 0, 2, 0, 0, 0, 0, 'ready', false, false, false, false, false, false, 12, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.480907+00', NULL, 'lint', '', NULL, NULL);
INSERT INTO public.task VALUES (49, 7, 2, 2, 2, 1, NULL, 1, 3, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL);
INSERT INTO public.task VALUES (62, 9, 2, 2, 2, 2, NULL, 1, 2, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL);
INSERT INTO public.task VALUES (61, 9, 2, 2, 2, 2, 9, 0, 1, 0, 0, 0, 0, 'ready', false, false, false, false, false, false, 13, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.535442+00', NULL, 'lint', '', NULL, NULL);
INSERT INTO public.task VALUES (67, 10, 2, 3, 2, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.554204+00', 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (68, 10, 2, 3, 2, 1, 11, 0, 1, 0, 0, 0, 0, 'ready', false, false, true, false, false, false, 14, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.568987+00', NULL, 'deploy', '', NULL, NULL);
INSERT INTO public.task VALUES (70, 10, 2, 3, 2, 1, NULL, 2, 3, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL);
INSERT INTO public.task VALUES (69, 10, 2, 3, 2, 1, 10, 0, 2, 0, 0, 0, 0, 'ready', false, false, false, false, false, false, 15, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.568921+00', NULL, 'test', '', NULL, NULL);
INSERT INTO public.task VALUES (73, 11, 2, 3, 3, 1, NULL, 1, 0, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (74, 11, 2, 3, 3, 1, 11, 1, 1, 0, 0, 0, 0, 'waiting', false, false, true, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'deploy', '', NULL, NULL);
INSERT INTO public.task VALUES (75, 11, 2, 3, 3, 1, 10, 1, 2, 0, 0, 0, 0, 'waiting', false, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'test', '', NULL, NULL);
INSERT INTO public.task VALUES (76, 11, 2, 3, 3, 1, NULL, 3, 3, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL);
INSERT INTO public.task VALUES (79, 12, 2, 3, 4, 1, NULL, 2, 0, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (80, 12, 2, 3, 4, 1, NULL, 1, 1, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL);
INSERT INTO public.task VALUES (83, 13, 3, 4, 1, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.617267+00', 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (88, 14, 3, 4, 2, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.672621+00', '2026-01-05 07:50:54.672621+00', 'PREV:*:settled', '', NULL, NULL);
INSERT INTO public.task VALUES (87, 14, 3, 4, 2, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.683295+00', '2026-01-05 07:50:54.683295+00', 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (90, 14, 3, 4, 2, 1, NULL, 1, 2, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL);
INSERT INTO public.task VALUES (89, 14, 3, 4, 2, 1, 12, 0, 1, 0, 0, 0, 0, 'ready', false, false, false, false, false, false, 9, NULL, NULL, NULL, NULL, '2026-01-05 07:50:54.688014+00', NULL, 'one', '', NULL, NULL);
INSERT INTO public.task VALUES (93, 15, 3, 4, 3, 1, NULL, 1, 0, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'COMMIT', '', NULL, NULL);
INSERT INTO public.task VALUES (94, 15, 3, 4, 3, 1, NULL, 1, 0, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'PREV:*:settled', '', NULL, NULL);
INSERT INTO public.task VALUES (95, 15, 3, 4, 3, 1, 12, 1, 1, 0, 0, 0, 0, 'waiting', false, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'one', '', NULL, NULL);
INSERT INTO public.task VALUES (96, 15, 3, 4, 3, 1, NULL, 2, 2, 0, 0, 0, 0, 'waiting', true, false, false, false, false, false, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL);
INSERT INTO public.task_manager VALUES ('manager-1', 'host-1', 'a-host', 8, NULL, NULL, '2026-01-05 07:50:53.582483+00', '2026-01-05 07:50:53.582483+00', NULL);
INSERT INTO public.task_name VALUES (1, 'COMMIT');
INSERT INTO public.task_name VALUES (1, 'REPORT');
INSERT INTO public.task_name VALUES (1, 'after');
INSERT INTO public.task_name VALUES (1, 'all');
INSERT INTO public.task_name VALUES (1, 'box');
INSERT INTO public.task_name VALUES (1, 'index');
INSERT INTO public.task_name VALUES (1, 'pdf');
INSERT INTO public.task_name VALUES (1, 'strict');
INSERT INTO public.task_name VALUES (1, 'upload');
INSERT INTO public.task_name VALUES (2, 'COMMIT');
INSERT INTO public.task_name VALUES (3, 'COMMIT');
INSERT INTO public.task_name VALUES (2, 'REPORT');
INSERT INTO public.task_name VALUES (2, 'build');
INSERT INTO public.task_name VALUES (2, 'lint');
INSERT INTO public.task_name VALUES (3, 'REPORT');
INSERT INTO public.task_name VALUES (3, 'deploy');
INSERT INTO public.task_name VALUES (3, 'test');
INSERT INTO public.task_name VALUES (4, 'COMMIT');
INSERT INTO public.task_name VALUES (4, 'REPORT');
INSERT INTO public.task_name VALUES (4, 'one');
INSERT INTO public.token OVERRIDING SYSTEM VALUE VALUES (1, 'ci', '\xe72620f85fd5a74a504dd1da3224e7dc5b122d59def3b1329f8e388ee0cf5f57', 'operate', '{papers}', '2026-01-05 07:50:54.716244+00', NULL);
INSERT INTO public.token OVERRIDING SYSTEM VALUE VALUES (2, 'old', '\x6bcef7f0db806593ed3ef7d2357159d9c3751a92873ea8a002617d10cd7d346d', 'admin', NULL, '2026-01-05 07:50:54.72574+00', '2026-01-05 07:50:54.72842+00');
INSERT INTO public.workflow OVERRIDING SYSTEM VALUE VALUES (1, '\x4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945', '[]', '[]');
INSERT INTO public.workflow OVERRIDING SYSTEM VALUE VALUES (2, '\x24a1881b8e5bf0a8c247dfecdd393e7e8159f975049751e285b59966d4933b28', '[{"line": 1, "name": "index", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": null, "previous": true}]}, {"line": 4, "name": "pdf", "path": "_workflows/test.yaml", "cancels": [{"task": null, "previous": true}], "command": "true", "depends": [{"task": "index"}]}, {"line": 8, "name": "strict", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": null, "previous": true}]}, {"line": 11, "name": "after", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": "strict"}]}, {"line": 14, "name": "upload", "path": "_workflows/test.yaml", "command": "true"}, {"line": 16, "name": "box", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": null, "previous": true}]}, {"line": 19, "name": "all", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": "*", "when": "settled", "previous": true}]}]', '[]');
INSERT INTO public.workflow OVERRIDING SYSTEM VALUE VALUES (5, '\xb80b92f3b27eb975098e2dcd377dcfb333fdf8c3bc82fff294a2b98a0bed83f1', '[{"line": 1, "name": "build", "path": "_workflows/test.yaml", "cancels": [{"task": null, "previous": true}], "command": "true"}, {"line": 4, "name": "lint", "path": "_workflows/test.yaml", "command": "true"}, {"on": ["manual", "schedule"], "line": 6, "name": "nightly", "path": "_workflows/test.yaml", "command": "true", "schedule": "0 3 * * *"}]', '[]');
INSERT INTO public.workflow OVERRIDING SYSTEM VALUE VALUES (6, '\x321fa6128b141b3c665fc02a1d8b9d44605b1dc28a42a59bed76489c6a3365d4', '[{"line": 1, "name": "deploy", "path": "_workflows/test.yaml", "command": "true", "exclusive": true}, {"line": 4, "name": "test", "path": "_workflows/test.yaml", "command": "true"}]', '[]');
INSERT INTO public.workflow OVERRIDING SYSTEM VALUE VALUES (7, '\xb998098448bc9a9935644c34f4a2c5703db808658016e73b2d42b62cb645749c', '[]', '[{"line": 1, "path": "_workflows/test.yaml", "word": "", "column": 1, "message": "a fault", "suggestion": ""}]');
INSERT INTO public.workflow OVERRIDING SYSTEM VALUE VALUES (9, '\x2331961838f403526b5a93191799eb3c15b0405fc088569237523259ad34bd50', '[{"line": 1, "name": "COMMIT", "path": "_workflows/test.yaml", "depends": [{"task": "*", "when": "settled", "previous": true}]}, {"line": 3, "name": "one", "path": "_workflows/test.yaml", "command": "true"}]', '[]');
SELECT pg_catalog.setval('public.archive_id_seq', 3, true);
SELECT pg_catalog.setval('public.attempt_id', 8, true);
SELECT pg_catalog.setval('public.branch_id_seq', 4, true);
SELECT pg_catalog.setval('public.deed_id_seq', 4, true);
SELECT pg_catalog.setval('public.definition_id_seq', 12, true);
SELECT pg_catalog.setval('public.notice', 1, true);
SELECT pg_catalog.setval('public.revision_id', 15, true);
SELECT pg_catalog.setval('public.run_id', 15, true);
SELECT pg_catalog.setval('public.schedule_id_seq', 1, true);
SELECT pg_catalog.setval('public.task_id', 98, true);
SELECT pg_catalog.setval('public.token_id_seq', 2, true);
SELECT pg_catalog.setval('public.turn', 8, true);
SELECT pg_catalog.setval('public.workflow_id_seq', 9, true);
ALTER TABLE ONLY public.archive
    ADD CONSTRAINT archive_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.attempt
    ADD CONSTRAINT attempt_task_id_number_key UNIQUE (task_id, number);
ALTER TABLE ONLY public.branch
    ADD CONSTRAINT branch_archive_id_name_key UNIQUE (archive_id, name);
ALTER TABLE ONLY public.branch
    ADD CONSTRAINT branch_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.deed
    ADD CONSTRAINT deed_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.definition
    ADD CONSTRAINT definition_digest_key UNIQUE (digest);
ALTER TABLE ONLY public.definition
    ADD CONSTRAINT definition_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.edge
    ADD CONSTRAINT edge_pkey PRIMARY KEY (target, source, kind, settled);
ALTER TABLE ONLY public.heartbeat
    ADD CONSTRAINT heartbeat_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (single);
ALTER TABLE ONLY public.log_chunk
    ADD CONSTRAINT log_chunk_pkey PRIMARY KEY (attempt_id, "position");
ALTER TABLE ONLY public.look
    ADD CONSTRAINT look_pkey PRIMARY KEY (archive_id);
ALTER TABLE ONLY public.revision
    ADD CONSTRAINT revision_branch_id_number_key UNIQUE (branch_id, number);
ALTER TABLE ONLY public.revision
    ADD CONSTRAINT revision_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT run_branch_id_number_run_key UNIQUE (branch_id, number, run);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT run_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.schema_version
    ADD CONSTRAINT schema_version_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.task_manager
    ADD CONSTRAINT task_manager_pkey PRIMARY KEY (process);
ALTER TABLE ONLY public.task_name
    ADD CONSTRAINT task_name_pkey PRIMARY KEY (branch_id, name);
ALTER TABLE ONLY public.task
    ADD CONSTRAINT task_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.token
    ADD CONSTRAINT token_hash_key UNIQUE (hash);
ALTER TABLE ONLY public.token
    ADD CONSTRAINT token_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.workflow
    ADD CONSTRAINT workflow_digest_key UNIQUE (digest);
ALTER TABLE ONLY public.workflow
    ADD CONSTRAINT workflow_pkey PRIMARY KEY (id);
CREATE UNIQUE INDEX archive_name ON public.archive USING btree (name) WHERE (removed_at IS NULL);
CREATE UNIQUE INDEX attempt_live ON public.attempt USING btree (task_id) WHERE (ended_at IS NULL);
CREATE INDEX attempt_live_by_process ON public.attempt USING btree (process) WHERE (ended_at IS NULL);
CREATE INDEX deed_run ON public.deed USING btree (run_id) WHERE (run_id IS NOT NULL);
CREATE INDEX deed_task ON public.deed USING btree (task_id) WHERE (task_id IS NOT NULL);
CREATE INDEX edge_source ON public.edge USING btree (source);
CREATE INDEX revision_name ON public.revision USING btree (branch_id, name);
CREATE INDEX run_archive ON public.run USING btree (archive_id, id);
CREATE UNIQUE INDEX run_commit ON public.run USING btree (revision_id) WHERE (trigger = 'commit'::text);
CREATE UNIQUE INDEX schedule_fire_once ON public.schedule_fire USING btree (branch_id, cron, zone, public.key_of(tasks), fire_at);
CREATE UNIQUE INDEX schedule_key ON public.schedule USING btree (branch_id, cron, zone, public.key_of(tasks));
CREATE INDEX task_canceling ON public.task USING btree (branch_id, number) WHERE fired;
CREATE INDEX task_due ON public.task USING btree (due_at) WHERE (state = 'deferred'::public.task_state);
CREATE INDEX task_exclusive ON public.task USING btree (branch_id) WHERE (exclusive AND (settled_at IS NULL));
CREATE UNIQUE INDEX task_key ON public.task USING btree (branch_id, name, number, run, item);
CREATE INDEX task_open ON public.task USING btree (branch_id, name, number) WHERE (settled_at IS NULL);
CREATE INDEX task_ready ON public.task USING btree (ticket) WHERE (state = 'ready'::public.task_state);
CREATE INDEX task_root ON public.task USING btree (root_id) WHERE (root_id IS NOT NULL);
CREATE INDEX task_run ON public.task USING btree (run_id);
ALTER TABLE ONLY public.branch
    ADD CONSTRAINT branch_archive_id_fkey FOREIGN KEY (archive_id) REFERENCES public.archive(id);
ALTER TABLE ONLY public.branch
    ADD CONSTRAINT branch_head_id_fkey FOREIGN KEY (head_id) REFERENCES public.revision(id);
ALTER TABLE ONLY public.look
    ADD CONSTRAINT look_archive_id_fkey FOREIGN KEY (archive_id) REFERENCES public.archive(id);
ALTER TABLE ONLY public.revision
    ADD CONSTRAINT revision_branch_id_fkey FOREIGN KEY (branch_id) REFERENCES public.branch(id);
ALTER TABLE ONLY public.revision
    ADD CONSTRAINT revision_workflow_id_fkey FOREIGN KEY (workflow_id) REFERENCES public.workflow(id);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT run_archive_id_fkey FOREIGN KEY (archive_id) REFERENCES public.archive(id);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT run_branch_id_fkey FOREIGN KEY (branch_id) REFERENCES public.branch(id);
ALTER TABLE ONLY public.run
    ADD CONSTRAINT run_revision_id_fkey FOREIGN KEY (revision_id) REFERENCES public.revision(id);
ALTER TABLE ONLY public.schedule
    ADD CONSTRAINT schedule_branch_id_fkey FOREIGN KEY (branch_id) REFERENCES public.branch(id);
ALTER TABLE ONLY public.schedule_fire
    ADD CONSTRAINT schedule_fire_branch_id_fkey FOREIGN KEY (branch_id) REFERENCES public.branch(id);
ALTER TABLE ONLY public.schedule_fire
    ADD CONSTRAINT schedule_fire_run_id_fkey FOREIGN KEY (run_id) REFERENCES public.run(id);
ALTER TABLE ONLY public.task_name
    ADD CONSTRAINT task_name_branch_id_fkey FOREIGN KEY (branch_id) REFERENCES public.branch(id);
