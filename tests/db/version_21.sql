-- A database of version 21, with held, paused and running work: what tests/db/test_upgrade_of_holds.py brings up to date and goes on with.
--
-- The code of that version made it, at commit 8d838c6, and pg_dump wrote it down. Every date but that of a lease is in the past.
-- To make it again, run this with that commit's environment, in its folder, with PYTHONPATH=. (its queue is driven by its tests/builders.py):
--
--     import re, subprocess, tempfile
--     from dataclasses import replace
--     from datetime import UTC, datetime, timedelta
--     from pathlib import Path
--     from arkqueue.db import Database
--     from arkqueue.db.embedded.server import Embedded
--     from arkqueue.db.migrations import migrate
--     from arkqueue.db.session import Session
--     from arkqueue.model import ArchiveSettings, RunId
--     from arkqueue.queue import archives, claim, control, holds, pauses
--     from tests.builders import HOST, PROCESS, an_archive
--
--     PAPERS = {"index": "", "pdf": "depends: [index]", "publish": "depends: [pdf]\nhold: true", "upload": ""}
--     SITE = {"build": "", "lint": "", "deploy": "depends: [build]"}
--
--
--     def drive(session):
--         claim.register(session, PROCESS, HOST, "a-host", 8)
--         claim.installation(session)
--         papers = an_archive(session)
--         papers.commit(PAPERS)
--         papers.run("index@2")
--         papers.end("upload@2", 75)
--         papers.claim("pdf@2")
--         papers.commit(PAPERS)
--         holds.hold_run(session, RunId(papers.run_id(3)), "ann", "wait for Bob")
--         holds.release(session, papers.task("upload@3"), "bob")
--         control.prioritize(session, papers.task("index@3"), 10, "ann")
--         holds.hold_archive(session, papers.id, "ann", "until Monday")
--         papers.commit(PAPERS)
--         site = an_archive(session, "site")
--         settings = ArchiveSettings(process=True, max_running=1, tier=3, require_approval=("deploy",), approval_not_author=True)
--         archives.change_settings(session, site.id, settings)
--         site.commit(SITE)
--         site.claim("build@2")
--         pauses.pause(session, site.id, "the disk is full", "ann")
--
--
--     home = Path(tempfile.mkdtemp(dir="/tmp"))
--     server = Embedded.open(home, durable=False)
--     with Database.open(server.uri) as database:
--         with database.connect() as connection:
--             migrate(connection)
--         drive(Session(database))
--         with database.connect() as connection:
--             connection.execute("update attempt set lease_until = '2126-01-01' where ended_at is null")
--     pg_dump = server.psql.replace("psql", "pg_dump").split()[0]
--     dump = subprocess.run([pg_dump, "--inserts", "--no-owner", "--no-privileges", server.uri], capture_output=True, text=True, check=True).stdout
--     server.destroy()
--     today = datetime.now(UTC).date()
--     for date in (today, today + timedelta(1)):  # always in the past
--         dump = dump.replace(str(date), f"2026-01-0{5 + (date - today).days}")
--     kept = [line for line in dump.splitlines() if line and not re.match(r"--|\\|SET |SELECT pg_catalog.set_config", line)]
--     print("\n".join(kept))
CREATE TYPE public.attempt_kind AS ENUM (
    'run'
);
CREATE TYPE public.edge_kind AS ENUM (
    'depends',
    'cancels',
    'exclusive',
    'stopping'
);
CREATE TYPE public.task_kind AS ENUM (
    'commit',
    'report',
    'gate',
    'ordinary'
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
CREATE FUNCTION public.blocks_behind(settled boolean, crossing boolean, has_root boolean, state public.task_state, waived boolean, blocks smallint, has_begun boolean) RETURNS smallint
    LANGUAGE sql IMMUTABLE
    AS $$ select case when found = 1 and (settled or not crossing and not has_root) then 0 else found end::smallint
   from (select case when state in ('canceled', 'skipped') then blocks
                     when state in ('failed', 'rejected') then (not waived)::int
                     when state <> 'completed' and not crossing and has_begun then 1
                     else 2 end) s(found) $$;
CREATE FUNCTION public.key_of(names text[]) RETURNS text
    LANGUAGE sql IMMUTABLE
    AS $$ select md5(array_to_string(names, ' ')) $$;
CREATE FUNCTION public.meets(settled boolean, crossing boolean, state public.task_state, as_completed boolean, waived boolean, blocks smallint) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    AS $$ select case when state in ('canceled', 'skipped') and crossing then blocks <= settled::int
               when state in ('failed', 'rejected', 'canceled', 'skipped') then settled or as_completed or crossing and waived
               else state = 'completed' end $$;
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
    hold_id bigint,
    trouble text,
    trouble_since timestamp with time zone,
    read_at timestamp with time zone,
    next_read_at timestamp with time zone DEFAULT now() NOT NULL,
    pool text GENERATED ALWAYS AS (
CASE
    WHEN (((settings ->> 'image'::text) IS NOT NULL) OR (((settings ->> 'process'::text))::boolean IS NOT TRUE)) THEN 'container'::text
    ELSE 'process'::text
END) STORED NOT NULL,
    paused_at timestamp with time zone,
    paused_by text,
    pause_reason text,
    paused_with_all boolean DEFAULT false NOT NULL,
    is_paused boolean GENERATED ALWAYS AS (((paused_at IS NOT NULL) OR paused_with_all)) STORED NOT NULL,
    withheld boolean GENERATED ALWAYS AS (((stopped IS NOT NULL) OR (paused_at IS NOT NULL) OR paused_with_all)) STORED NOT NULL,
    tier integer GENERATED ALWAYS AS (COALESCE(((settings ->> 'tier'::text))::integer, 5)) STORED NOT NULL,
    max_running integer GENERATED ALWAYS AS (((settings ->> 'max_running'::text))::integer) STORED,
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
    kind public.attempt_kind DEFAULT 'run'::public.attempt_kind NOT NULL,
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
    followed_until timestamp with time zone,
    CONSTRAINT attempt_check CHECK (((ended_at IS NULL) = ("end" IS NULL)))
)
WITH (fillfactor='85');
CREATE TABLE public.branch (
    id bigint NOT NULL,
    archive_id bigint NOT NULL,
    name text NOT NULL,
    main boolean DEFAULT false NOT NULL,
    head_id bigint,
    deleted_at timestamp with time zone,
    import_id bigint,
    import_until text,
    accepted_workflow_id bigint
);
ALTER TABLE public.branch ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.branch_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.completion (
    branch_id bigint NOT NULL,
    name text NOT NULL,
    item text DEFAULT ''::text NOT NULL,
    revision_id bigint NOT NULL,
    run integer NOT NULL,
    highest_number bigint NOT NULL,
    highest_run integer NOT NULL
)
WITH (fillfactor='50');
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
    cancels jsonb DEFAULT '[]'::jsonb NOT NULL,
    pool text GENERATED ALWAYS AS (
CASE
    WHEN ((body ->> 'image'::text) IS NOT NULL) THEN 'container'::text
    ELSE NULL::text
END) STORED
);
ALTER TABLE public.definition ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.definition_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.drain (
    host text NOT NULL,
    drained_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    drained_by text NOT NULL,
    reason text NOT NULL
);
CREATE TABLE public.edge (
    target bigint NOT NULL,
    source bigint NOT NULL,
    kind public.edge_kind NOT NULL,
    settled boolean NOT NULL,
    crossing boolean NOT NULL,
    declared boolean NOT NULL,
    met boolean NOT NULL,
    product boolean DEFAULT false NOT NULL,
    failed boolean DEFAULT false NOT NULL
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
CREATE SEQUENCE public.item_id
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
CREATE TABLE public.item (
    id bigint DEFAULT nextval('public.item_id'::regclass) NOT NULL,
    run_id bigint NOT NULL,
    body jsonb NOT NULL
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
CREATE TABLE public.pause (
    id integer DEFAULT 1 NOT NULL,
    paused_at timestamp with time zone,
    paused_by text,
    reason text,
    CONSTRAINT pause_id_check CHECK ((id = 1))
);
CREATE TABLE public.ready_archive (
    archive_id bigint NOT NULL,
    pools text[] NOT NULL,
    tier integer DEFAULT 5 NOT NULL,
    limited boolean DEFAULT false NOT NULL
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
    read_at timestamp with time zone DEFAULT now() NOT NULL,
    is_foreign boolean DEFAULT false NOT NULL
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
    left_out integer DEFAULT 0 NOT NULL,
    left_out_since timestamp with time zone,
    CONSTRAINT run_trigger_check CHECK ((trigger = ANY (ARRAY['commit'::text, 'manual'::text, 'schedule'::text, 'submission'::text])))
);
CREATE TABLE public.schedule (
    id bigint NOT NULL,
    branch_id bigint NOT NULL,
    cron text NOT NULL,
    zone text NOT NULL,
    tasks text[] NOT NULL,
    next_at timestamp with time zone NOT NULL,
    run_id bigint
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
CREATE TABLE public.slot (
    archive_id bigint NOT NULL,
    number integer NOT NULL,
    attempt_id bigint,
    closed boolean DEFAULT false NOT NULL
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
    kind public.task_kind NOT NULL,
    program boolean NOT NULL,
    cancels boolean DEFAULT false NOT NULL,
    exclusive boolean DEFAULT false NOT NULL,
    fired boolean DEFAULT false NOT NULL,
    waived boolean DEFAULT false NOT NULL,
    as_completed boolean DEFAULT false NOT NULL,
    pool text,
    priority integer DEFAULT 50 NOT NULL,
    prioritized boolean DEFAULT false NOT NULL,
    entry_id bigint,
    attempt_id bigint,
    root_id bigint,
    blocks smallint DEFAULT 0 NOT NULL,
    superseded_by bigint,
    hold_id bigint,
    release_id bigint,
    due_at timestamp with time zone,
    ready_at timestamp with time zone,
    settled_at timestamp with time zone,
    name text NOT NULL,
    item text DEFAULT ''::text NOT NULL,
    item_id bigint,
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
    low_disk text,
    account text,
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
    authors text[] DEFAULT '{}'::text[] NOT NULL,
    CONSTRAINT token_scope_check CHECK ((scope = ANY (ARRAY['hook'::text, 'read'::text, 'operate'::text, 'approve'::text, 'admin'::text])))
);
ALTER TABLE public.token ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.token_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
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
INSERT INTO public.archive OVERRIDING SYSTEM VALUE VALUES (1, 'papers', 'subversion', '/srv/papers', '/srv/papers', '', '', '{"tier": 5, "image": null, "users": [], "author": null, "follow": [], "images": [], "process": true, "branches": [], "networks": [], "task_url": null, "max_running": null, "process_user": null, "require_approval": [], "workflow_authors": [], "approval_not_author": false}', '2026-01-05 09:05:35.054517+00', NULL, NULL, 4, NULL, NULL, NULL, '2026-01-05 09:05:35.054517+00', DEFAULT, NULL, NULL, NULL, false, DEFAULT, DEFAULT, DEFAULT, DEFAULT);
INSERT INTO public.archive OVERRIDING SYSTEM VALUE VALUES (2, 'site', 'subversion', '/srv/site', '/srv/site', '', '', '{"tier": 3, "image": null, "users": [], "author": null, "follow": [], "images": [], "process": true, "branches": [], "networks": [], "task_url": null, "max_running": 1, "process_user": null, "require_approval": ["deploy"], "workflow_authors": [], "approval_not_author": true}', '2026-01-05 09:05:35.914599+00', NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-05 09:05:35.914599+00', DEFAULT, '2026-01-05 09:05:36.291315+00', 'ann', 'the disk is full', false, DEFAULT, DEFAULT, DEFAULT, DEFAULT);
INSERT INTO public.attempt VALUES (1, 4, 'run', 1, 'manager-1', 'host-1', '2026-01-05 09:07:05.313676+00', '2026-01-05 09:05:35.313678+00', NULL, '2026-01-05 09:05:35.37424+00', 0, 'exited', '', NULL, NULL, NULL, NULL, 0, 0, 0, NULL);
INSERT INTO public.attempt VALUES (2, 7, 'run', 1, 'manager-1', 'host-1', '2026-01-05 09:07:05.314219+00', '2026-01-05 09:05:35.31422+00', NULL, '2026-01-05 09:05:35.47624+00', 75, 'exited', '', NULL, NULL, NULL, NULL, 0, 0, 0, NULL);
INSERT INTO public.attempt VALUES (3, 5, 'run', 1, 'manager-1', 'host-1', '2126-01-01 00:00:00+00', '2026-01-05 09:05:35.43441+00', NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, 0, 0, 0, NULL);
INSERT INTO public.attempt VALUES (4, 24, 'run', 1, 'manager-1', 'host-1', '2126-01-01 00:00:00+00', '2026-01-05 09:05:36.2717+00', NULL, NULL, NULL, NULL, '', NULL, NULL, NULL, NULL, 0, 0, 0, NULL);
INSERT INTO public.branch OVERRIDING SYSTEM VALUE VALUES (1, 1, '', true, 4, NULL, NULL, NULL, NULL);
INSERT INTO public.branch OVERRIDING SYSTEM VALUE VALUES (2, 2, '', true, 6, NULL, NULL, NULL, NULL);
INSERT INTO public.completion VALUES (1, 'index', '', 2, 1, 2, 1);
INSERT INTO public.deed OVERRIDING SYSTEM VALUE VALUES (1, '2026-01-05 09:05:35.614334+00', 'ann', 'hold', 1, 3, NULL, 'wait for Bob');
INSERT INTO public.deed OVERRIDING SYSTEM VALUE VALUES (2, '2026-01-05 09:05:35.695466+00', 'bob', 'release', 1, 3, 13, '');
INSERT INTO public.deed OVERRIDING SYSTEM VALUE VALUES (3, '2026-01-05 09:05:35.791681+00', 'ann', 'prioritize', 1, 3, 10, '10');
INSERT INTO public.deed OVERRIDING SYSTEM VALUE VALUES (4, '2026-01-05 09:05:35.817175+00', 'ann', 'hold', 1, NULL, NULL, 'until Monday');
INSERT INTO public.deed OVERRIDING SYSTEM VALUE VALUES (5, '2026-01-05 09:05:36.30651+00', 'ann', 'pause', 2, NULL, NULL, 'the disk is full');
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (1, '\x5f7451ca64a13a057551f2f6d7c1ca12f3b642da6459661da388fad568855083', '{"line": 10, "name": "upload", "path": "_workflows/test.yaml", "command": "true"}', '[]', DEFAULT);
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (2, '\x7e99a9860be1b48ba7afdd5cfa29700e93234f0e1f28a824e31106354d640529', '{"line": 3, "name": "pdf", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": "index"}]}', '[]', DEFAULT);
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (3, '\xc45d3c80aa31cef168393f7d4689d66efa56b214a572f61807f821f704a7d3fe', '{"line": 1, "name": "index", "path": "_workflows/test.yaml", "command": "true"}', '[]', DEFAULT);
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (4, '\xeab71c4c3b72f5e050cd8e8dffe06da4e72a2bc7df5ac201c1de861fa6d70dd8', '{"hold": true, "line": 6, "name": "publish", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": "pdf"}]}', '[]', DEFAULT);
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (5, '\x1218b759908736397f788339f978d1af51f648b7e3228e2cbfd5289307feb3f9', '{"line": 3, "name": "lint", "path": "_workflows/test.yaml", "command": "true"}', '[]', DEFAULT);
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (6, '\x35862dbd26cac3057fcc5aad1646b580154880a4cff343975370ec2ff9a11f2f', '{"line": 5, "name": "deploy", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": "build"}]}', '[]', DEFAULT);
INSERT INTO public.definition OVERRIDING SYSTEM VALUE VALUES (7, '\x451c4cd5cec97c3e709f829b3475d380c273c1bbf9513c54513db3ec62b4d1f1', '{"line": 1, "name": "build", "path": "_workflows/test.yaml", "command": "true"}', '[]', DEFAULT);
INSERT INTO public.edge VALUES (3, 1, 'depends', false, true, false, true, false, false);
INSERT INTO public.edge VALUES (4, 3, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (5, 3, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (6, 3, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (6, 5, 'depends', false, false, true, false, false, false);
INSERT INTO public.edge VALUES (7, 3, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (5, 4, 'depends', false, false, true, true, false, false);
INSERT INTO public.edge VALUES (9, 3, 'depends', false, true, false, true, false, false);
INSERT INTO public.edge VALUES (10, 9, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (11, 9, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (11, 10, 'depends', false, false, true, false, false, false);
INSERT INTO public.edge VALUES (12, 9, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (12, 11, 'depends', false, false, true, false, false, false);
INSERT INTO public.edge VALUES (13, 9, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (15, 9, 'depends', false, true, false, true, false, false);
INSERT INTO public.edge VALUES (16, 15, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (17, 15, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (17, 16, 'depends', false, false, true, false, false, false);
INSERT INTO public.edge VALUES (18, 15, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (18, 17, 'depends', false, false, true, false, false, false);
INSERT INTO public.edge VALUES (19, 15, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (23, 21, 'depends', false, true, false, true, false, false);
INSERT INTO public.edge VALUES (24, 23, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (25, 23, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (26, 23, 'depends', false, false, false, true, false, false);
INSERT INTO public.edge VALUES (26, 24, 'depends', false, false, true, false, false, false);
INSERT INTO public.heartbeat VALUES (1, '2026-01-05 09:05:35.009827+00', '2026-01-05 09:05:35.009827+00');
INSERT INTO public.installation VALUES (true, '5624077f-a467-4947-a769-ae10a5bf4c54');
INSERT INTO public.pause VALUES (1, NULL, NULL, NULL);
INSERT INTO public.ready_archive VALUES (1, '{process}', 5, false);
INSERT INTO public.revision VALUES (1, 1, 1, '1', 'ann', '2026-01-01 00:00:00+00', 'change 1', NULL, 0, 1, true, NULL, NULL, '2026-01-05 09:05:35.054517+00', false);
INSERT INTO public.revision VALUES (2, 1, 2, '2', 'ann', '2026-01-01 00:00:00+00', 'change 2', NULL, 0, 2, false, '1', NULL, '2026-01-05 09:05:35.200067+00', false);
INSERT INTO public.revision VALUES (3, 1, 3, '3', 'ann', '2026-01-01 00:00:00+00', 'change 3', NULL, 0, 2, false, '2', NULL, '2026-01-05 09:05:35.525653+00', false);
INSERT INTO public.revision VALUES (4, 1, 4, '4', 'ann', '2026-01-01 00:00:00+00', 'change 4', NULL, 0, 2, false, '3', NULL, '2026-01-05 09:05:35.878323+00', false);
INSERT INTO public.revision VALUES (5, 2, 1, '1', 'ann', '2026-01-01 00:00:00+00', 'change 1', NULL, 0, 1, true, NULL, NULL, '2026-01-05 09:05:35.914599+00', false);
INSERT INTO public.revision VALUES (6, 2, 2, '2', 'ann', '2026-01-01 00:00:00+00', 'change 2', NULL, 0, 3, false, '1', NULL, '2026-01-05 09:05:36.130167+00', false);
INSERT INTO public.run VALUES (1, 1, 1, 1, 1, 1, 'commit', 'ann', '[]', NULL, '2026-01-05 09:05:35.054517+00', NULL, NULL, NULL, NULL, 0, NULL);
INSERT INTO public.run VALUES (2, 1, 1, 2, 2, 1, 'commit', 'ann', '[]', 8, '2026-01-05 09:05:35.200067+00', NULL, NULL, NULL, NULL, 0, NULL);
INSERT INTO public.run VALUES (3, 1, 1, 3, 3, 1, 'commit', 'ann', '[]', 14, '2026-01-05 09:05:35.525653+00', NULL, NULL, NULL, NULL, 0, NULL);
INSERT INTO public.run VALUES (4, 1, 1, 4, 4, 1, 'commit', 'ann', '[]', 20, '2026-01-05 09:05:35.878323+00', NULL, NULL, NULL, NULL, 0, NULL);
INSERT INTO public.run VALUES (5, 2, 2, 5, 1, 1, 'commit', 'ann', '[]', NULL, '2026-01-05 09:05:35.914599+00', NULL, NULL, NULL, NULL, 0, NULL);
INSERT INTO public.run VALUES (6, 2, 2, 6, 2, 1, 'commit', 'ann', '[]', 27, '2026-01-05 09:05:36.130167+00', NULL, NULL, NULL, NULL, 0, NULL);
INSERT INTO public.schema_version VALUES (21, 'schema.sql b685204208f7badd', '2026-01-05 09:05:34.244792+00');
INSERT INTO public.slot VALUES (2, 1, 4, false);
INSERT INTO public.task VALUES (1, 1, 1, 1, 1, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', 'commit', false, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, '2026-01-05 09:05:35.138916+00', 'COMMIT', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (3, 2, 1, 1, 2, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', 'commit', false, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, '2026-01-05 09:05:35.256418+00', 'COMMIT', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (6, 2, 1, 1, 2, 1, 4, 1, 3, 0, 0, 0, 0, 'held', 'ordinary', true, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, 0, NULL, NULL, NULL, NULL, 'publish', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (4, 2, 1, 1, 2, 1, 3, 0, 1, 1, 0, 0, 0, 'completed', 'ordinary', true, false, false, false, false, false, 'process', 50, false, 2, 1, NULL, 0, NULL, NULL, NULL, NULL, '2026-01-05 09:05:35.261858+00', '2026-01-05 09:05:35.373667+00', 'index', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (8, 2, 1, 1, 2, 1, NULL, 3, 5, 0, 0, 0, 0, 'waiting', 'report', false, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (5, 2, 1, 1, 2, 1, 2, 0, 2, 1, 0, 0, 0, 'running', 'ordinary', true, false, false, false, false, false, 'process', 50, false, 2, 3, NULL, 0, NULL, NULL, NULL, NULL, '2026-01-05 09:05:35.406613+00', NULL, 'pdf', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (7, 2, 1, 1, 2, 1, 1, 0, 4, 1, 0, 1, 0, 'deferred', 'ordinary', true, false, false, false, false, false, 'process', 50, false, 2, 2, NULL, 0, NULL, NULL, NULL, '2026-01-05 09:06:35.475881+00', '2026-01-05 09:05:35.262152+00', NULL, 'upload', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (9, 3, 1, 1, 3, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', 'commit', false, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, '2026-01-05 09:05:35.56863+00', 'COMMIT', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (12, 3, 1, 1, 3, 1, 4, 1, 3, 0, 0, 0, 0, 'held', 'ordinary', true, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, 0, NULL, NULL, NULL, NULL, 'publish', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (14, 3, 1, 1, 3, 1, NULL, 4, 5, 0, 0, 0, 0, 'waiting', 'report', false, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (11, 3, 1, 1, 3, 1, 2, 1, 2, 0, 0, 0, 0, 'held', 'ordinary', true, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, 1, NULL, NULL, NULL, NULL, 'pdf', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (10, 3, 1, 1, 3, 1, 3, 0, 1, 0, 0, 0, 0, 'held', 'ordinary', true, false, false, false, false, false, 'process', 10, true, 3, NULL, NULL, 0, NULL, 1, NULL, NULL, '2026-01-05 09:05:35.568732+00', NULL, 'index', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (13, 3, 1, 1, 3, 1, 1, 0, 4, 0, 0, 0, 0, 'held', 'ordinary', true, false, false, false, false, false, 'process', 50, false, 3, NULL, NULL, 0, NULL, 4, NULL, NULL, '2026-01-05 09:05:35.738656+00', NULL, 'upload', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (15, 4, 1, 1, 4, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', 'commit', false, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, '2026-01-05 09:05:35.896353+00', 'COMMIT', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (16, 4, 1, 1, 4, 1, 3, 0, 1, 0, 0, 0, 0, 'held', 'ordinary', true, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, 4, NULL, NULL, NULL, NULL, 'index', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (17, 4, 1, 1, 4, 1, 2, 1, 2, 0, 0, 0, 0, 'held', 'ordinary', true, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, 4, NULL, NULL, NULL, NULL, 'pdf', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (18, 4, 1, 1, 4, 1, 4, 1, 3, 0, 0, 0, 0, 'held', 'ordinary', true, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, 0, NULL, NULL, NULL, NULL, 'publish', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (19, 4, 1, 1, 4, 1, 1, 0, 4, 0, 0, 0, 0, 'held', 'ordinary', true, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, 4, NULL, NULL, NULL, NULL, 'upload', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (20, 4, 1, 1, 4, 1, NULL, 4, 5, 0, 0, 0, 0, 'waiting', 'report', false, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (21, 5, 2, 2, 1, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', 'commit', false, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, '2026-01-05 09:05:35.978508+00', 'COMMIT', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (23, 6, 2, 2, 2, 1, NULL, 0, 0, 0, 0, 0, 0, 'completed', 'commit', false, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, '2026-01-05 09:05:36.168805+00', 'COMMIT', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (25, 6, 2, 2, 2, 1, 5, 0, 2, 0, 0, 0, 0, 'ready', 'ordinary', true, false, false, false, false, false, 'process', 50, false, 6, NULL, NULL, 0, NULL, NULL, NULL, NULL, '2026-01-05 09:05:36.168964+00', NULL, 'lint', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (26, 6, 2, 2, 2, 1, 6, 1, 3, 0, 0, 0, 0, 'held', 'ordinary', true, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, -1, NULL, NULL, NULL, NULL, 'deploy', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (27, 6, 2, 2, 2, 1, NULL, 3, 4, 0, 0, 0, 0, 'waiting', 'report', false, false, false, false, false, false, NULL, 50, false, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, NULL, 'REPORT', '', NULL, NULL, NULL);
INSERT INTO public.task VALUES (24, 6, 2, 2, 2, 1, 7, 0, 1, 1, 0, 0, 0, 'running', 'ordinary', true, false, false, false, false, false, 'process', 50, false, 6, 4, NULL, 0, NULL, NULL, NULL, NULL, '2026-01-05 09:05:36.168903+00', NULL, 'build', '', NULL, NULL, NULL);
INSERT INTO public.task_manager VALUES ('manager-1', 'host-1', 'a-host', 8, NULL, NULL, NULL, NULL, '2026-01-05 09:05:35.028454+00', '2026-01-05 09:05:35.028454+00', NULL);
INSERT INTO public.task_name VALUES (1, 'index');
INSERT INTO public.task_name VALUES (1, 'pdf');
INSERT INTO public.task_name VALUES (1, 'publish');
INSERT INTO public.task_name VALUES (1, 'upload');
INSERT INTO public.task_name VALUES (2, 'build');
INSERT INTO public.task_name VALUES (2, 'deploy');
INSERT INTO public.task_name VALUES (2, 'lint');
INSERT INTO public.workflow OVERRIDING SYSTEM VALUE VALUES (1, '\x4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945', '[]', '[]');
INSERT INTO public.workflow OVERRIDING SYSTEM VALUE VALUES (2, '\xb1067fe349bd8f89945af60db9dad36547c0faf86564bbe555979afcf5d5bea6', '[{"line": 1, "name": "index", "path": "_workflows/test.yaml", "command": "true"}, {"line": 3, "name": "pdf", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": "index"}]}, {"hold": true, "line": 6, "name": "publish", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": "pdf"}]}, {"line": 10, "name": "upload", "path": "_workflows/test.yaml", "command": "true"}]', '[]');
INSERT INTO public.workflow OVERRIDING SYSTEM VALUE VALUES (3, '\xdf5a8c206bd7c5138cfb7c66b7ba0fc20a5cefde3dd19d076b63dfaeff813a3f', '[{"line": 1, "name": "build", "path": "_workflows/test.yaml", "command": "true"}, {"line": 3, "name": "lint", "path": "_workflows/test.yaml", "command": "true"}, {"line": 5, "name": "deploy", "path": "_workflows/test.yaml", "command": "true", "depends": [{"task": "build"}]}]', '[]');
SELECT pg_catalog.setval('public.archive_id_seq', 2, true);
SELECT pg_catalog.setval('public.attempt_id', 4, true);
SELECT pg_catalog.setval('public.branch_id_seq', 2, true);
SELECT pg_catalog.setval('public.deed_id_seq', 5, true);
SELECT pg_catalog.setval('public.definition_id_seq', 7, true);
SELECT pg_catalog.setval('public.item_id', 1, false);
SELECT pg_catalog.setval('public.notice', 1, false);
SELECT pg_catalog.setval('public.revision_id', 6, true);
SELECT pg_catalog.setval('public.run_id', 6, true);
SELECT pg_catalog.setval('public.schedule_id_seq', 1, false);
SELECT pg_catalog.setval('public.task_id', 27, true);
SELECT pg_catalog.setval('public.token_id_seq', 1, false);
SELECT pg_catalog.setval('public.workflow_id_seq', 3, true);
ALTER TABLE ONLY public.archive
    ADD CONSTRAINT archive_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.attempt
    ADD CONSTRAINT attempt_task_id_kind_number_key UNIQUE (task_id, kind, number);
ALTER TABLE ONLY public.branch
    ADD CONSTRAINT branch_archive_id_name_key UNIQUE (archive_id, name);
ALTER TABLE ONLY public.branch
    ADD CONSTRAINT branch_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.completion
    ADD CONSTRAINT completion_pkey PRIMARY KEY (branch_id, name, item);
ALTER TABLE ONLY public.deed
    ADD CONSTRAINT deed_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.definition
    ADD CONSTRAINT definition_digest_key UNIQUE (digest);
ALTER TABLE ONLY public.definition
    ADD CONSTRAINT definition_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.drain
    ADD CONSTRAINT drain_pkey PRIMARY KEY (host);
ALTER TABLE ONLY public.edge
    ADD CONSTRAINT edge_pkey PRIMARY KEY (target, source, kind, settled);
ALTER TABLE ONLY public.heartbeat
    ADD CONSTRAINT heartbeat_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.installation
    ADD CONSTRAINT installation_pkey PRIMARY KEY (single);
ALTER TABLE ONLY public.item
    ADD CONSTRAINT item_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.log_chunk
    ADD CONSTRAINT log_chunk_pkey PRIMARY KEY (attempt_id, "position");
ALTER TABLE ONLY public.look
    ADD CONSTRAINT look_pkey PRIMARY KEY (archive_id);
ALTER TABLE ONLY public.pause
    ADD CONSTRAINT pause_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.ready_archive
    ADD CONSTRAINT ready_archive_pkey PRIMARY KEY (archive_id);
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
ALTER TABLE ONLY public.slot
    ADD CONSTRAINT slot_attempt_id_key UNIQUE (attempt_id);
ALTER TABLE ONLY public.slot
    ADD CONSTRAINT slot_pkey PRIMARY KEY (archive_id, number);
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
CREATE INDEX edge_failed ON public.edge USING btree (source) WHERE failed;
CREATE INDEX edge_source ON public.edge USING btree (source);
CREATE INDEX item_run ON public.item USING btree (run_id);
CREATE INDEX ready_archive_special ON public.ready_archive USING btree (archive_id) WHERE (limited OR (tier <> 5));
CREATE INDEX ready_archive_turn ON public.ready_archive USING btree (tier, archive_id);
CREATE INDEX revision_name ON public.revision USING btree (branch_id, name);
CREATE INDEX run_archive ON public.run USING btree (archive_id, id);
CREATE UNIQUE INDEX run_commit ON public.run USING btree (revision_id) WHERE (trigger = 'commit'::text);
CREATE UNIQUE INDEX schedule_fire_once ON public.schedule_fire USING btree (branch_id, cron, zone, public.key_of(tasks), fire_at);
CREATE UNIQUE INDEX schedule_key ON public.schedule USING btree (branch_id, cron, zone, public.key_of(tasks));
CREATE INDEX slot_free ON public.slot USING btree (archive_id) WHERE ((attempt_id IS NULL) AND (NOT closed));
CREATE INDEX task_blocking ON public.task USING btree (run_id) WHERE (blocks > 0);
CREATE INDEX task_canceling ON public.task USING btree (branch_id, number) WHERE fired;
CREATE INDEX task_commit ON public.task USING btree (branch_id, number) WHERE ((kind = 'commit'::public.task_kind) AND (settled_at IS NULL));
CREATE INDEX task_due ON public.task USING btree (due_at) WHERE (state = 'deferred'::public.task_state);
CREATE INDEX task_exclusive ON public.task USING btree (branch_id) WHERE (exclusive AND (settled_at IS NULL));
CREATE INDEX task_held ON public.task USING btree (archive_id, run_id) WHERE (state = 'held'::public.task_state);
CREATE UNIQUE INDEX task_key ON public.task USING btree (branch_id, name, item, number, run);
CREATE INDEX task_open ON public.task USING btree (branch_id, name, number) WHERE (settled_at IS NULL);
CREATE INDEX task_ready ON public.task USING btree (pool, archive_id, priority, entry_id, run, "position") WHERE (state = 'ready'::public.task_state);
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
