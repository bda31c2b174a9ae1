CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;
COMMENT ON EXTENSION vector IS 'vector data type and ivfflat and hnsw access methods';
CREATE FUNCTION public.tell_document() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
declare
  gone   boolean := tg_op = 'DELETE';
  one    documents := case when tg_op = 'DELETE' then old else new end;
  labels json := to_json(one.container_tags);
begin
  if not gone and one.status in ('done', 'failed')
     or exists (select from watchers where expires_at > now()) then
    perform pg_notify('recollect_documents', json_build_object(
      'org', one.org_id, 'id', one.id, 'kind', one.kind, 'stage', one.stage,
      'status', case when gone then 'deleted' else one.status end,
      -- A notice holds 8000 bytes; what does not fit is told to keys without limits only.
      'tags', case when octet_length(labels::text) < 7000 then labels end,
      'at', (extract(epoch from clock_timestamp()) * 1000)::bigint)::text);
  end if;
  return null;
end $$;
CREATE TABLE public.authorizations (
    state bytea NOT NULL,
    connection_id text NOT NULL,
    verifier text,
    redirect_url text,
    expires_at timestamp with time zone NOT NULL
);
CREATE TABLE public.chunks (
    document_id text NOT NULL,
    "position" integer NOT NULL,
    start_at integer NOT NULL,
    end_at integer NOT NULL,
    hash bytea NOT NULL,
    place jsonb DEFAULT '{}'::jsonb NOT NULL,
    CONSTRAINT chunks_check CHECK ((end_at > start_at))
);
CREATE TABLE public.connections (
    id text NOT NULL,
    org_id text NOT NULL,
    provider text NOT NULL,
    container_tags text[] NOT NULL,
    document_limit integer NOT NULL,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    secrets text,
    tokens text,
    expires_at timestamp with time zone,
    account text,
    email text,
    state text NOT NULL,
    paused boolean DEFAULT false NOT NULL,
    error_code text,
    error_message text,
    cursor jsonb,
    listings jsonb DEFAULT '{}'::jsonb NOT NULL,
    troubled text[] DEFAULT '{}'::text[] NOT NULL,
    held jsonb DEFAULT '{}'::jsonb NOT NULL,
    call_at timestamp with time zone,
    due_at timestamp with time zone,
    wanted_at timestamp with time zone,
    wanted_by text,
    began_at timestamp with time zone,
    claims bigint DEFAULT 0 NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    parked_until timestamp with time zone,
    last_synced_at timestamp with time zone,
    pushed_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT connections_check CHECK (((state <> ALL (ARRAY['pending'::text, 'needs_auth'::text])) OR (due_at IS NULL))),
    CONSTRAINT connections_check1 CHECK (((state <> 'syncing'::text) OR (due_at IS NOT NULL))),
    CONSTRAINT connections_container_tags_check CHECK ((cardinality(container_tags) > 0)),
    CONSTRAINT connections_document_limit_check CHECK (((document_limit >= 1) AND (document_limit <= 10000))),
    CONSTRAINT connections_state_check CHECK ((state = ANY (ARRAY['pending'::text, 'ready'::text, 'syncing'::text, 'needs_auth'::text]))),
    CONSTRAINT connections_wanted_by_check CHECK ((wanted_by = ANY (ARRAY['event'::text, 'cron'::text, 'manual'::text])))
);
CREATE TABLE public.documents (
    id text NOT NULL,
    org_id text NOT NULL,
    custom_id text,
    container_tags text[] NOT NULL,
    scope integer[] NOT NULL,
    kind text NOT NULL,
    title text,
    url text,
    source text NOT NULL,
    filepath text,
    metadata jsonb,
    document_date timestamp with time zone,
    task_type text DEFAULT 'memory'::text NOT NULL,
    content text,
    content_hash bytea NOT NULL,
    blob text,
    blob_name text,
    blob_mime text,
    forced_kind text,
    revision integer DEFAULT 1 NOT NULL,
    status text DEFAULT 'queued'::text NOT NULL,
    stage text,
    due_at timestamp with time zone DEFAULT now(),
    attempts integer DEFAULT 0 NOT NULL,
    claims bigint DEFAULT 0 NOT NULL,
    error_code text,
    error_message text,
    indexed_revision integer,
    text text,
    chunks integer DEFAULT 0 NOT NULL,
    reused integer DEFAULT 0 NOT NULL,
    embedded integer DEFAULT 0 NOT NULL,
    removed integer DEFAULT 0 NOT NULL,
    timings jsonb DEFAULT '{}'::jsonb NOT NULL,
    warnings text[] DEFAULT '{}'::text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    connection_id text,
    source_id text,
    CONSTRAINT documents_check CHECK (((due_at IS NULL) = (status = ANY (ARRAY['done'::text, 'failed'::text])))),
    CONSTRAINT documents_check1 CHECK (((stage IS NULL) OR (status = 'processing'::text))),
    CONSTRAINT documents_container_tags_check CHECK ((cardinality(container_tags) > 0)),
    CONSTRAINT documents_content CHECK (((content IS NOT NULL) OR (blob IS NOT NULL) OR (source_id IS NOT NULL))),
    CONSTRAINT documents_metadata_check CHECK ((jsonb_typeof(metadata) = 'object'::text)),
    CONSTRAINT documents_stage_check CHECK ((stage = ANY (ARRAY['extracting'::text, 'chunking'::text, 'embedding'::text, 'indexing'::text]))),
    CONSTRAINT documents_status_check CHECK ((status = ANY (ARRAY['queued'::text, 'processing'::text, 'done'::text, 'failed'::text]))),
    CONSTRAINT documents_task_type_check CHECK ((task_type = ANY (ARRAY['memory'::text, 'superrag'::text])))
);
CREATE TABLE public.doomed_blobs (
    key text NOT NULL,
    doomed_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.entries (
    document_id text NOT NULL,
    hash bytea NOT NULL,
    text text NOT NULL,
    terms integer[] NOT NULL,
    weights public.sparsevec(1000000000) NOT NULL,
    embedding public.halfvec
);
CREATE TABLE public.farewells (
    id text NOT NULL,
    provider text NOT NULL,
    sealed text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone DEFAULT (now() + '1 day'::interval) NOT NULL
);
CREATE TABLE public.folders (
    connection_id text NOT NULL,
    id text NOT NULL,
    name text NOT NULL,
    parent text NOT NULL
);
CREATE TABLE public.hook_secrets (
    provider text NOT NULL,
    hash bytea NOT NULL,
    secret text NOT NULL,
    came_at timestamp with time zone DEFAULT now() NOT NULL,
    confirmed_at timestamp with time zone
);
CREATE TABLE public.index_settings (
    only_row boolean DEFAULT true NOT NULL,
    embedder text NOT NULL,
    dimensions integer NOT NULL,
    CONSTRAINT index_settings_only_row_check CHECK (only_row)
);
CREATE TABLE public.items (
    connection_id text NOT NULL,
    id text NOT NULL,
    version text,
    title text,
    url text,
    kind text,
    metadata jsonb DEFAULT '{}'::jsonb NOT NULL,
    tags text[] DEFAULT '{}'::text[] NOT NULL,
    extra jsonb DEFAULT '{}'::jsonb NOT NULL,
    branch text DEFAULT ''::text NOT NULL,
    verdict text NOT NULL,
    detail text,
    document_id text,
    modified_at timestamp with time zone,
    seen_at timestamp with time zone NOT NULL,
    missing_at timestamp with time zone
);
CREATE UNLOGGED TABLE public.key_usage (
    key_id text NOT NULL,
    allowed integer NOT NULL,
    length interval NOT NULL,
    started_at timestamp with time zone NOT NULL,
    used integer NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.keys (
    id text NOT NULL,
    org_id text NOT NULL,
    name text NOT NULL,
    hash bytea NOT NULL,
    scope text NOT NULL,
    tags text[],
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    rate_limit integer,
    rate_window interval,
    CONSTRAINT keys_rate_limit_check CHECK ((rate_limit > 0)),
    CONSTRAINT keys_rate_window_check CHECK ((rate_window > '00:00:00'::interval)),
    CONSTRAINT keys_scope_check CHECK ((scope = ANY (ARRAY['read'::text, 'write'::text, 'admin'::text]))),
    CONSTRAINT keys_tags_check CHECK ((cardinality(tags) > 0))
);
CREATE TABLE public.migrations (
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.orgs (
    id text NOT NULL,
    name text NOT NULL,
    plan text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT orgs_plan_check CHECK ((plan = ANY (ARRAY['free'::text, 'pro'::text, 'scale'::text, 'enterprise'::text])))
);
CREATE TABLE public.pushes (
    provider text NOT NULL,
    key text NOT NULL,
    came_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.registrations (
    id text NOT NULL,
    connection_id text NOT NULL,
    resource text NOT NULL,
    secret text NOT NULL,
    url text NOT NULL,
    remote jsonb,
    expires_at timestamp with time zone,
    renew_at timestamp with time zone,
    retired boolean DEFAULT false NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    error text,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.settings (
    org_id text NOT NULL,
    data jsonb NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);
CREATE TABLE public.sync_runs (
    id text NOT NULL,
    connection_id text NOT NULL,
    trigger text NOT NULL,
    status text NOT NULL,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    added integer DEFAULT 0 NOT NULL,
    changed integer DEFAULT 0 NOT NULL,
    unchanged integer DEFAULT 0 NOT NULL,
    removed integer DEFAULT 0 NOT NULL,
    failed integer DEFAULT 0 NOT NULL,
    skipped jsonb DEFAULT '{}'::jsonb NOT NULL,
    error_code text,
    error_message text,
    notes text[] DEFAULT '{}'::text[] NOT NULL,
    CONSTRAINT sync_runs_check CHECK (((finished_at IS NULL) = (status = 'running'::text))),
    CONSTRAINT sync_runs_status_check CHECK ((status = ANY (ARRAY['running'::text, 'completed'::text, 'partial'::text, 'failed'::text]))),
    CONSTRAINT sync_runs_trigger_check CHECK ((trigger = ANY (ARRAY['event'::text, 'cron'::text, 'manual'::text])))
);
CREATE TABLE public.tag_merges (
    id text NOT NULL,
    org_id text NOT NULL,
    sources text[] NOT NULL,
    target text NOT NULL,
    moved integer DEFAULT 0 NOT NULL,
    kept text[] DEFAULT '{}'::text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT tag_merges_sources_check CHECK ((cardinality(sources) > 0))
);
CREATE TABLE public.tags (
    org_id text NOT NULL,
    name text NOT NULL,
    entity_context text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    title text,
    profile_buckets jsonb,
    CONSTRAINT tags_entity_context_check CHECK ((char_length(entity_context) <= 1500))
);
CREATE TABLE public.term_counts (
    org_id text NOT NULL,
    number integer NOT NULL,
    entries integer NOT NULL
)
WITH (fillfactor='70');
CREATE UNLOGGED TABLE public.watchers (
    id text NOT NULL,
    expires_at timestamp with time zone NOT NULL
);
ALTER TABLE ONLY public.authorizations
    ADD CONSTRAINT authorizations_pkey PRIMARY KEY (state);
ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_pkey PRIMARY KEY (document_id, "position");
ALTER TABLE ONLY public.connections
    ADD CONSTRAINT connections_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.doomed_blobs
    ADD CONSTRAINT doomed_blobs_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.entries
    ADD CONSTRAINT entries_pkey PRIMARY KEY (document_id, hash);
ALTER TABLE ONLY public.farewells
    ADD CONSTRAINT farewells_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.folders
    ADD CONSTRAINT folders_pkey PRIMARY KEY (connection_id, id);
ALTER TABLE ONLY public.hook_secrets
    ADD CONSTRAINT hook_secrets_pkey PRIMARY KEY (provider, hash);
ALTER TABLE ONLY public.index_settings
    ADD CONSTRAINT index_settings_pkey PRIMARY KEY (only_row);
ALTER TABLE ONLY public.items
    ADD CONSTRAINT items_pkey PRIMARY KEY (connection_id, id);
ALTER TABLE ONLY public.key_usage
    ADD CONSTRAINT key_usage_pkey PRIMARY KEY (key_id);
ALTER TABLE ONLY public.keys
    ADD CONSTRAINT keys_hash_key UNIQUE (hash);
ALTER TABLE ONLY public.keys
    ADD CONSTRAINT keys_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.migrations
    ADD CONSTRAINT migrations_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.orgs
    ADD CONSTRAINT orgs_name_key UNIQUE (name);
ALTER TABLE ONLY public.orgs
    ADD CONSTRAINT orgs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.pushes
    ADD CONSTRAINT pushes_pkey PRIMARY KEY (provider, key);
ALTER TABLE ONLY public.registrations
    ADD CONSTRAINT registrations_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.settings
    ADD CONSTRAINT settings_pkey PRIMARY KEY (org_id);
ALTER TABLE ONLY public.sync_runs
    ADD CONSTRAINT sync_runs_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.tag_merges
    ADD CONSTRAINT tag_merges_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.tags
    ADD CONSTRAINT tags_pkey PRIMARY KEY (org_id, name);
ALTER TABLE ONLY public.term_counts
    ADD CONSTRAINT term_counts_pkey PRIMARY KEY (org_id, number);
ALTER TABLE ONLY public.watchers
    ADD CONSTRAINT watchers_pkey PRIMARY KEY (id);
CREATE INDEX authorizations_connection ON public.authorizations USING btree (connection_id);
CREATE INDEX connections_account ON public.connections USING btree (provider, account);
CREATE INDEX connections_due ON public.connections USING btree (due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX connections_org ON public.connections USING btree (org_id, created_at DESC, id DESC);
CREATE INDEX documents_created ON public.documents USING btree (org_id, created_at DESC, id DESC);
CREATE UNIQUE INDEX documents_custom_id ON public.documents USING btree (org_id, custom_id, (container_tags[1])) WHERE (custom_id IS NOT NULL);
CREATE INDEX documents_due ON public.documents USING btree (due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX documents_in_flight ON public.documents USING btree (org_id, content_hash) WHERE (due_at IS NOT NULL);
CREATE INDEX documents_metadata ON public.documents USING gin (metadata jsonb_path_ops);
CREATE INDEX documents_scope ON public.documents USING gin (scope);
CREATE UNIQUE INDEX documents_source ON public.documents USING btree (connection_id, source_id) WHERE (connection_id IS NOT NULL);
CREATE INDEX documents_turns ON public.documents USING btree (org_id, (container_tags[1]), due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX documents_updated ON public.documents USING btree (org_id, updated_at DESC, id DESC);
CREATE INDEX entries_terms ON public.entries USING gin (terms);
CREATE INDEX farewells_due ON public.farewells USING btree (due_at);
CREATE INDEX items_document ON public.items USING btree (document_id) WHERE (document_id IS NOT NULL);
CREATE INDEX items_unseen ON public.items USING btree (connection_id, seen_at);
CREATE INDEX items_verdict ON public.items USING btree (connection_id, verdict, id);
CREATE INDEX keys_org ON public.keys USING btree (org_id);
CREATE INDEX pushes_came ON public.pushes USING btree (came_at);
CREATE INDEX registrations_connection ON public.registrations USING btree (connection_id);
CREATE INDEX sync_runs_connection ON public.sync_runs USING btree (connection_id, started_at DESC, id DESC);
CREATE INDEX tag_merges_unfinished ON public.tag_merges USING btree (org_id) WHERE (finished_at IS NULL);
CREATE TRIGGER tell_added AFTER INSERT OR DELETE ON public.documents FOR EACH ROW EXECUTE FUNCTION public.tell_document();
CREATE TRIGGER tell_changed AFTER UPDATE OF status, stage ON public.documents FOR EACH ROW WHEN (((old.status IS DISTINCT FROM new.status) OR (old.stage IS DISTINCT FROM new.stage))) EXECUTE FUNCTION public.tell_document();
ALTER TABLE ONLY public.authorizations
    ADD CONSTRAINT authorizations_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES public.connections(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.chunks
    ADD CONSTRAINT chunks_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.connections
    ADD CONSTRAINT connections_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES public.connections(id) ON DELETE SET NULL;
ALTER TABLE ONLY public.documents
    ADD CONSTRAINT documents_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.entries
    ADD CONSTRAINT entries_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.documents(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.folders
    ADD CONSTRAINT folders_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES public.connections(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.items
    ADD CONSTRAINT items_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES public.connections(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.items
    ADD CONSTRAINT items_document_id_fkey FOREIGN KEY (document_id) REFERENCES public.documents(id) ON DELETE SET NULL;
ALTER TABLE ONLY public.key_usage
    ADD CONSTRAINT key_usage_key_id_fkey FOREIGN KEY (key_id) REFERENCES public.keys(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.keys
    ADD CONSTRAINT keys_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.registrations
    ADD CONSTRAINT registrations_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES public.connections(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.settings
    ADD CONSTRAINT settings_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.sync_runs
    ADD CONSTRAINT sync_runs_connection_id_fkey FOREIGN KEY (connection_id) REFERENCES public.connections(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.tag_merges
    ADD CONSTRAINT tag_merges_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.tags
    ADD CONSTRAINT tags_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.term_counts
    ADD CONSTRAINT term_counts_org_id_fkey FOREIGN KEY (org_id) REFERENCES public.orgs(id) ON DELETE CASCADE;
