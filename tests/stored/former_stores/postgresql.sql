-- revision 0014
CREATE TABLE public.agent_keys (
    agent_id character varying(128) NOT NULL,
    number integer NOT NULL,
    made_at timestamp with time zone NOT NULL,
    previous_until timestamp with time zone,
    revoked_at timestamp with time zone
);
CREATE TABLE public.agents (
    id character varying(128) NOT NULL,
    boot_id character varying(64) NOT NULL,
    beat_counter bigint NOT NULL,
    state character varying(16) NOT NULL,
    heartbeat_at timestamp with time zone,
    first_seen_at timestamp with time zone NOT NULL,
    clock_offset_s double precision,
    machine_id character varying(128) NOT NULL,
    facts json NOT NULL,
    fingerprint character varying(64) NOT NULL,
    is_drained boolean NOT NULL,
    attempt_id bigint,
    lease_expires_at timestamp with time zone,
    lease_boot_id character varying(64),
    unclean_token bigint,
    stop_sent_at timestamp with time zone,
    template_bytes bigint,
    backlog_count bigint,
    backlog_bytes bigint,
    report_lag_s double precision,
    disk_free_bytes bigint,
    is_removed boolean DEFAULT false NOT NULL,
    CONSTRAINT ck_agents_agent_state CHECK (((state)::text = ANY ((ARRAY['idle'::character varying, 'busy'::character varying, 'spool_full'::character varying, 'leaving'::character varying])::text[])))
);
CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);
CREATE TABLE public.api_tokens (
    id bigint NOT NULL,
    name character varying(64) NOT NULL,
    scope character varying(16) NOT NULL,
    secret_hash character varying(64) NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    CONSTRAINT ck_api_tokens_api_token_scope CHECK (((scope)::text = ANY ((ARRAY['read'::character varying, 'submit'::character varying, 'admin'::character varying])::text[])))
);
CREATE SEQUENCE public.api_tokens_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.api_tokens_id_seq OWNED BY public.api_tokens.id;
CREATE TABLE public.attempts (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    number integer NOT NULL,
    state character varying(16) NOT NULL,
    state_since timestamp with time zone NOT NULL,
    leased_at timestamp with time zone NOT NULL,
    started_at timestamp with time zone,
    ended_at timestamp with time zone,
    failure_kind character varying(32),
    reason text,
    CONSTRAINT ck_attempts_attempt_state CHECK (((state)::text = ANY ((ARRAY['preparing'::character varying, 'measuring'::character varying, 'shaping'::character varying, 'starting'::character varying, 'running'::character varying, 'succeeded'::character varying, 'failed'::character varying, 'lost'::character varying, 'void'::character varying, 'cancelled'::character varying])::text[])))
);
CREATE SEQUENCE public.attempts_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.attempts_id_seq OWNED BY public.attempts.id;
CREATE TABLE public.epochs (
    attempt_id bigint NOT NULL,
    rank integer NOT NULL,
    epoch integer NOT NULL,
    train_s double precision NOT NULL,
    step_count integer NOT NULL,
    train_loss double precision,
    val_loss double precision,
    val_accuracy_ratio double precision
);
CREATE TABLE public.farm_identity (
    id integer NOT NULL,
    farm_id character varying(32) NOT NULL,
    incarnation integer NOT NULL,
    place text,
    broker_id character varying(32),
    broker_seen_at timestamp with time zone
);
CREATE TABLE public.job_events (
    id bigint NOT NULL,
    job_id bigint NOT NULL,
    attempt_id bigint,
    at timestamp with time zone NOT NULL,
    event character varying(64) NOT NULL,
    reason text
);
CREATE SEQUENCE public.job_events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.job_events_id_seq OWNED BY public.job_events.id;
CREATE TABLE public.jobs (
    id bigint NOT NULL,
    sweep_id bigint NOT NULL,
    spec json NOT NULL,
    cell_hash character varying(64) NOT NULL,
    model text NOT NULL,
    dataset text NOT NULL,
    strategy text NOT NULL,
    world_size integer NOT NULL,
    global_batch_size integer NOT NULL,
    repetition integer NOT NULL,
    priority integer NOT NULL,
    state character varying(16) NOT NULL,
    attempt_id bigint,
    attempt_count integer NOT NULL,
    due_at timestamp with time zone NOT NULL,
    cancel_requested boolean NOT NULL,
    failure_kind character varying(32),
    reason text,
    created_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone,
    rank_count integer DEFAULT 1 NOT NULL,
    requires json DEFAULT '[]'::json NOT NULL,
    CONSTRAINT ck_jobs_job_state CHECK (((state)::text = ANY ((ARRAY['waiting'::character varying, 'leased'::character varying, 'running'::character varying, 'succeeded'::character varying, 'failed'::character varying, 'cancelled'::character varying])::text[]))),
    CONSTRAINT ck_jobs_leased_has_attempt CHECK ((((state)::text = ANY ((ARRAY['leased'::character varying, 'running'::character varying])::text[])) = (attempt_id IS NOT NULL)))
);
CREATE SEQUENCE public.jobs_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.jobs_id_seq OWNED BY public.jobs.id;
CREATE TABLE public.kept_answers (
    name character varying(64) NOT NULL,
    request_digest character varying(64) NOT NULL,
    begun_at timestamp with time zone NOT NULL,
    status integer,
    body bytea,
    content_type text,
    location text
);
CREATE TABLE public.late_reports (
    id bigint NOT NULL,
    agent_id character varying(128) NOT NULL,
    generation character varying(64) NOT NULL,
    number bigint NOT NULL,
    token bigint NOT NULL,
    rank integer NOT NULL,
    kind character varying(32) NOT NULL,
    body json NOT NULL,
    received_at timestamp with time zone NOT NULL,
    reason text NOT NULL
);
CREATE SEQUENCE public.late_reports_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.late_reports_id_seq OWNED BY public.late_reports.id;
CREATE TABLE public.log_parts (
    attempt_id bigint NOT NULL,
    rank integer NOT NULL,
    first_character integer NOT NULL,
    text text NOT NULL
);
CREATE TABLE public.measurements (
    id bigint NOT NULL,
    origin character varying(64) NOT NULL,
    source_key character varying(64) NOT NULL,
    job_id bigint,
    attempt_id bigint,
    created_at timestamp with time zone NOT NULL,
    status character varying(32) NOT NULL,
    model text,
    dataset text,
    training_pass character varying(32) NOT NULL,
    framework text,
    strategy text,
    placement text,
    network text,
    instance_type text,
    world_size integer NOT NULL,
    server_count integer NOT NULL,
    global_batch_size integer NOT NULL,
    one_way_delay_s double precision NOT NULL,
    bandwidth_bytes_per_s double precision,
    packet_loss_ratio double precision NOT NULL,
    jitter_s double precision NOT NULL,
    repetition integer NOT NULL,
    fingerprint character varying(64),
    step_time_s double precision,
    step_time_p25_s double precision,
    step_time_p75_s double precision,
    step_time_spread_s double precision,
    timed_step_count integer,
    steps_per_epoch integer,
    time_per_epoch_s double precision,
    epochs integer,
    accuracy double precision,
    throughput_examples_per_s double precision,
    parameter_count bigint,
    gradient_bytes bigint,
    compute_s double precision,
    communication_s double precision,
    profiled_step_time_s double precision,
    cpu_ratio double precision,
    resident_bytes bigint,
    net_rx_bytes_per_s double precision,
    net_tx_bytes_per_s double precision,
    sent_bytes_per_step double precision,
    rtt_s double precision,
    details json NOT NULL,
    step_time_low_s double precision,
    step_time_high_s double precision,
    outlier_step_count integer,
    control_ratio double precision,
    flags json DEFAULT '[]'::json NOT NULL,
    measured_bandwidth_bytes_per_s double precision,
    server_placement character varying(16),
    replicas_per_rank integer,
    steps_between_averages integer,
    batch_split character varying(16),
    received_bytes_per_step double precision,
    idle_ratio double precision,
    push_s double precision,
    pull_s double precision,
    update_count integer,
    staleness_mean double precision,
    staleness_max integer,
    loaded_rtt_s double precision
);
CREATE SEQUENCE public.measurements_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.measurements_id_seq OWNED BY public.measurements.id;
CREATE TABLE public.ranks (
    attempt_id bigint NOT NULL,
    rank integer NOT NULL,
    agent_id character varying(128) NOT NULL,
    phase character varying(16) NOT NULL,
    commanded_at timestamp with time zone,
    hardware json NOT NULL,
    prepared json,
    peers json,
    shaped json,
    started json,
    ended json,
    ended_at timestamp with time zone,
    control_s double precision,
    disturbed_by text,
    CONSTRAINT ck_ranks_rank_phase CHECK (((phase)::text = ANY ((ARRAY['leased'::character varying, 'prepared'::character varying, 'measured'::character varying, 'shaped'::character varying, 'started'::character varying, 'ended'::character varying])::text[])))
);
CREATE TABLE public.samples (
    day date NOT NULL,
    attempt_id bigint NOT NULL,
    rank integer NOT NULL,
    tick integer NOT NULL,
    machine_cpu_ratio double precision,
    machine_steal_ratio double precision,
    cpu_ratio double precision,
    memory_used_bytes bigint,
    resident_bytes bigint,
    net_rx_bytes_per_s double precision,
    net_tx_bytes_per_s double precision,
    disk_read_bytes_per_s double precision,
    disk_write_bytes_per_s double precision,
    disk_read_operations_per_s double precision,
    disk_write_operations_per_s double precision,
    extra json,
    swap_bytes_per_s double precision,
    throttled_ratio double precision,
    span_ticks integer DEFAULT 1 NOT NULL
)
PARTITION BY RANGE (day);
CREATE TABLE public.samples_default (
    day date NOT NULL,
    attempt_id bigint NOT NULL,
    rank integer NOT NULL,
    tick integer NOT NULL,
    machine_cpu_ratio double precision,
    machine_steal_ratio double precision,
    cpu_ratio double precision,
    memory_used_bytes bigint,
    resident_bytes bigint,
    net_rx_bytes_per_s double precision,
    net_tx_bytes_per_s double precision,
    disk_read_bytes_per_s double precision,
    disk_write_bytes_per_s double precision,
    disk_read_operations_per_s double precision,
    disk_write_operations_per_s double precision,
    extra json,
    swap_bytes_per_s double precision,
    throttled_ratio double precision,
    span_ticks integer DEFAULT 1 NOT NULL
);
CREATE TABLE public.spool_positions (
    agent_id character varying(128) NOT NULL,
    generation character varying(64) NOT NULL,
    confirmed_number bigint NOT NULL,
    updated_at timestamp with time zone NOT NULL,
    late_count bigint DEFAULT '0'::bigint NOT NULL,
    late_hour_count bigint DEFAULT '0'::bigint NOT NULL,
    late_hour timestamp with time zone
);
CREATE TABLE public.step_chunks (
    attempt_id bigint NOT NULL,
    rank integer NOT NULL,
    first_step integer NOT NULL,
    kind character varying(16) NOT NULL,
    begun_s double precision NOT NULL,
    step_count integer NOT NULL,
    median_s double precision NOT NULL,
    p95_s double precision NOT NULL,
    times bytea NOT NULL,
    CONSTRAINT ck_step_chunks_step_kind CHECK (((kind)::text = ANY ((ARRAY['warmup'::character varying, 'timed'::character varying, 'partial'::character varying, 'profiled'::character varying])::text[])))
);
CREATE TABLE public.sweeps (
    id bigint NOT NULL,
    name text NOT NULL,
    spec json NOT NULL,
    skipped json NOT NULL,
    created_at timestamp with time zone NOT NULL,
    is_paused boolean DEFAULT false NOT NULL
);
CREATE SEQUENCE public.sweeps_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;
ALTER SEQUENCE public.sweeps_id_seq OWNED BY public.sweeps.id;
ALTER TABLE ONLY public.samples ATTACH PARTITION public.samples_default DEFAULT;
ALTER TABLE ONLY public.api_tokens ALTER COLUMN id SET DEFAULT nextval('public.api_tokens_id_seq'::regclass);
ALTER TABLE ONLY public.attempts ALTER COLUMN id SET DEFAULT nextval('public.attempts_id_seq'::regclass);
ALTER TABLE ONLY public.job_events ALTER COLUMN id SET DEFAULT nextval('public.job_events_id_seq'::regclass);
ALTER TABLE ONLY public.jobs ALTER COLUMN id SET DEFAULT nextval('public.jobs_id_seq'::regclass);
ALTER TABLE ONLY public.late_reports ALTER COLUMN id SET DEFAULT nextval('public.late_reports_id_seq'::regclass);
ALTER TABLE ONLY public.measurements ALTER COLUMN id SET DEFAULT nextval('public.measurements_id_seq'::regclass);
ALTER TABLE ONLY public.sweeps ALTER COLUMN id SET DEFAULT nextval('public.sweeps_id_seq'::regclass);
INSERT INTO public.agent_keys VALUES ('a1', 3, '2026-11-01 12:00:00+00', NULL, NULL);
INSERT INTO public.agents VALUES ('a1', 'boot of a1', 7, 'busy', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', 0.25, 'machine-1', '{"machine_id": "machine-1", "address": "127.0.0.1", "interface": "lo", "first_port": 30000, "last_port": 30099, "cpus": [0], "labels": {"zone": "a"}, "capabilities": ["network"], "hardware": {"cpu_model": "A CPU", "core_count": 1, "memory_bytes": 8589934592, "kernel": "6.1.0", "tensorflow_version": "2.16.1", "python_version": "3.11.7", "benchfarm_version": "0.1.0"}}', 'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff', false, 2, '2026-03-01 12:05:00+00', 'b', NULL, NULL, NULL, NULL, NULL, NULL, NULL, false);
INSERT INTO public.agents VALUES ('a2', 'boot of a2', 7, 'idle', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', 0.25, 'machine-1', '{"machine_id": "machine-1", "address": "127.0.0.1", "interface": "lo", "first_port": 30000, "last_port": 30099, "cpus": [0], "labels": {"zone": "a"}, "capabilities": ["network"], "hardware": {"cpu_model": "A CPU", "core_count": 1, "memory_bytes": 8589934592, "kernel": "6.1.0", "tensorflow_version": "2.16.1", "python_version": "3.11.7", "benchfarm_version": "0.1.0"}}', 'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff', false, NULL, NULL, NULL, 4, '2026-03-01 12:00:00+00', NULL, NULL, NULL, NULL, NULL, false);
INSERT INTO public.alembic_version VALUES ('0014');
INSERT INTO public.api_tokens VALUES (1, 'ops', 'admin', 'eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee', '2026-11-01 12:00:00+00', NULL, NULL, NULL);
INSERT INTO public.attempts VALUES (2, 2, 1, 'running', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', NULL, NULL, NULL);
INSERT INTO public.attempts VALUES (3, 3, 1, 'succeeded', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', '2026-03-01 12:05:00+00', NULL, NULL);
INSERT INTO public.attempts VALUES (4, 4, 1, 'failed', '2026-03-01 12:00:00+00', '2026-03-01 12:00:00+00', NULL, '2026-03-01 12:05:00+00', 'out_of_memory', 'the kernel');
INSERT INTO public.epochs VALUES (3, 0, 0, 1.5, 10, NULL, 0.5, NULL);
INSERT INTO public.farm_identity VALUES (1, 'abababababababababababababababab', 2, NULL, 'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd', '2026-11-01 12:00:00+00');
INSERT INTO public.job_events VALUES (1, 2, 2, '2026-03-01 12:00:00+00', 'job: leased', NULL);
INSERT INTO public.job_events VALUES (2, 5, NULL, '2026-03-01 12:05:00+00', 'job: cancelled', 'by somebody');
INSERT INTO public.jobs VALUES (2, 1, '{"model": "mlp", "dataset": "digits", "strategy": "mwms_ring", "world_size": 2, "global_batch_size": 32, "steps": 10, "epochs": null, "warmup_step_count": 2, "seed": 0, "training_pass": "forward_backward", "network": null, "repetition": 2}', 'd64a6a4cd5f476f7bbe9f205157410e5c5d3259c963a34581299ca9aaf0f294e', 'mlp', 'digits', 'mwms_ring', 2, 32, 2, 0, 'running', 2, 1, '2026-03-01 12:00:00+00', false, NULL, NULL, '2026-03-01 12:00:00+00', NULL, 2, '["network"]');
INSERT INTO public.jobs VALUES (3, 1, '{"model": "mlp", "dataset": "digits", "strategy": "mwms_ring", "world_size": 2, "global_batch_size": 32, "steps": 10, "epochs": null, "warmup_step_count": 2, "seed": 0, "training_pass": "forward_backward", "network": {"one_way_delay_s": 0.01, "jitter_s": 0.0, "packet_loss_ratio": 0.0}, "repetition": 3}', 'd5f155e25da9748522de8e1defdf43c0328b13885a3d284eef7d51dee5790e47', 'mlp', 'digits', 'mwms_ring', 2, 32, 3, 0, 'succeeded', NULL, 1, '2026-03-01 12:00:00+00', false, NULL, NULL, '2026-03-01 12:00:00+00', '2026-03-01 12:05:00+00', 2, '["network"]');
INSERT INTO public.jobs VALUES (4, 1, '{"model": "mlp", "dataset": "digits", "strategy": "mwms_ring", "world_size": 2, "global_batch_size": 32, "steps": 10, "epochs": null, "warmup_step_count": 2, "seed": 0, "training_pass": "forward_backward", "network": null, "repetition": 4, "of_nobody": 1}', 'cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc', 'mlp', 'digits', 'mwms_ring', 2, 32, 4, 0, 'failed', NULL, 1, '2026-03-01 12:00:00+00', false, 'out_of_memory', NULL, '2026-03-01 12:00:00+00', '2026-03-01 12:05:00+00', 2, '["network"]');
INSERT INTO public.jobs VALUES (5, 1, '{"model": "mlp", "dataset": "digits", "strategy": "ps_sync", "world_size": 2, "global_batch_size": 32, "server_count": 1, "network": null, "emulator": null, "training_pass": "forward_backward", "steps": 10, "epochs": null, "warmup_step_count": 2, "seed": 0, "repetition": 5, "repeat": false, "labels": {}, "time_limit_s": 3600.0, "server_placement": "apart", "replicas_per_rank": 1, "steps_between_averages": 1, "placement": "soft", "batch_split": "even", "interface": null, "axes": {}}', 'cf26d0ed3f7f2f370c2c5924ab2904fd1d68d5586f04b5d06486ec47d2e8fa95', 'mlp', 'digits', 'mwms_ring', 2, 32, 5, 0, 'cancelled', NULL, 0, '2026-03-01 12:00:00+00', true, NULL, NULL, '2026-03-01 12:00:00+00', '2026-03-01 12:05:00+00', 2, '["network"]');
INSERT INTO public.jobs VALUES (1, 1, '{"model": "mlp", "dataset": "digits", "strategy": "mwms_ring", "world_size": 2, "global_batch_size": 32, "steps": 10, "epochs": null, "warmup_step_count": 2, "seed": 0, "training_pass": "forward_backward", "network": null, "repetition": 1}', 'd64a6a4cd5f476f7bbe9f205157410e5c5d3259c963a34581299ca9aaf0f294e', 'mlp', 'digits', 'mwms_ring', 2, 32, 1, 0, 'waiting', NULL, 0, '2026-03-01 12:00:00+00', false, NULL, NULL, '2026-03-01 12:00:00+00', NULL, 2, '[]');
INSERT INTO public.kept_answers VALUES ('kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk', 'dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd', '2026-11-01 12:00:00+00', 201, '\x7b7d', NULL, NULL);
INSERT INTO public.late_reports VALUES (1, 'a2', 'g', 5, 1, 0, 'ended', '{"result": null}', '2026-03-01 12:00:00+00', 'attempt 1 is over');
INSERT INTO public.log_parts VALUES (3, 0, 0, 'it''s a log
');
INSERT INTO public.measurements VALUES (1, 'farm', 'job 3', 3, 3, '2026-03-01 12:05:00+00', 'ok', 'mlp', 'digits', 'forward_backward', NULL, 'mwms_ring', NULL, NULL, NULL, 2, 0, 32, 0.01, NULL, 0, 0, 0, 'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff', 0.1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"why": "not"}', NULL, NULL, NULL, NULL, '[]', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.measurements VALUES (2, 'farm', 'job 3.2', NULL, 3, '2026-03-01 12:05:00+00', 'ok', 'mlp', 'digits', 'forward_backward', NULL, 'mwms_ring', NULL, NULL, NULL, 2, 0, 32, 0.01, NULL, 0, 0, 0, 'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff', 0.1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"why": "not"}', NULL, NULL, NULL, NULL, '[{"kind": "steal", "message": "agent a1, rank 0: 12 % of its cores was taken by the hypervisor (limit 10 %)"}]', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.measurements VALUES (3, 'farm', 'job 3.3', NULL, 3, '2026-03-01 12:05:00+00', 'ok', 'mlp', 'digits', 'forward_backward', NULL, 'mwms_ring', NULL, NULL, NULL, 2, 0, 32, 0.01, NULL, 0, 0, 0, 'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff', 0.1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"why": "not"}', NULL, NULL, NULL, NULL, '[{"kind": "swap", "message": "agent a1, rank 0: 3.5 MB/s went to and from swap (limit 1.0 MB/s)", "value": 3500000.0}, {"kind": "outliers", "message": "no figure here"}]', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.ranks VALUES (2, 0, 'a1', 'started', NULL, '{"cpu_model": "A CPU", "core_count": 1, "memory_bytes": 8589934592, "kernel": "6.1.0", "tensorflow_version": "2.16.1", "python_version": "3.11.7", "benchfarm_version": "0.1.0"}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.ranks VALUES (3, 0, 'a1', 'ended', NULL, '{"cpu_model": "A CPU", "core_count": 1, "memory_bytes": 8589934592, "kernel": "6.1.0", "tensorflow_version": "2.16.1", "python_version": "3.11.7", "benchfarm_version": "0.1.0"}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.ranks VALUES (3, 1, 'a2', 'ended', NULL, '{"cpu_model": "A CPU", "core_count": 1, "memory_bytes": 8589934592, "kernel": "6.1.0", "tensorflow_version": "2.16.1", "python_version": "3.11.7", "benchfarm_version": "0.1.0"}', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO public.samples_default VALUES ('2026-03-01', 3, 0, 0, NULL, NULL, 0.5, 17179869184, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'null', NULL, NULL, 1);
INSERT INTO public.samples_default VALUES ('2026-03-01', 3, 0, 1, NULL, NULL, 0.5, 17179869184, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"gpu0_ratio": 0.25}', NULL, NULL, 1);
INSERT INTO public.samples_default VALUES ('2026-03-01', 3, 0, 2, NULL, NULL, 0.5, 17179869184, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"gpu0_ratio": 0.25}', NULL, NULL, 1);
INSERT INTO public.samples_default VALUES ('2026-03-01', 3, 1, 0, NULL, NULL, 0.5, 17179869184, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'null', NULL, NULL, 1);
INSERT INTO public.samples_default VALUES ('2026-03-01', 3, 1, 1, NULL, NULL, 0.5, 17179869184, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"gpu0_ratio": 0.25}', NULL, NULL, 1);
INSERT INTO public.samples_default VALUES ('2026-03-01', 3, 1, 2, NULL, NULL, 0.5, 17179869184, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '{"gpu0_ratio": 0.25}', NULL, NULL, 1);
INSERT INTO public.spool_positions VALUES ('a1', 'g', 41, '2026-03-01 12:00:00+00', 0, 0, NULL);
INSERT INTO public.step_chunks VALUES (3, 0, 0, 'timed', 0.5, 1, 0.1, 0.2, '\x0001');
INSERT INTO public.sweeps VALUES (1, 'old', '{"name": "old"}', '["x"]', '2026-03-01 12:00:00+00', false);
SELECT pg_catalog.setval('public.api_tokens_id_seq', 100, true);
SELECT pg_catalog.setval('public.attempts_id_seq', 100, true);
SELECT pg_catalog.setval('public.job_events_id_seq', 100, true);
SELECT pg_catalog.setval('public.jobs_id_seq', 100, true);
SELECT pg_catalog.setval('public.late_reports_id_seq', 100, true);
SELECT pg_catalog.setval('public.measurements_id_seq', 100, true);
SELECT pg_catalog.setval('public.sweeps_id_seq', 100, true);
ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);
ALTER TABLE ONLY public.agent_keys
    ADD CONSTRAINT pk_agent_keys PRIMARY KEY (agent_id);
ALTER TABLE ONLY public.agents
    ADD CONSTRAINT pk_agents PRIMARY KEY (id);
ALTER TABLE ONLY public.api_tokens
    ADD CONSTRAINT pk_api_tokens PRIMARY KEY (id);
ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT pk_attempts PRIMARY KEY (id);
ALTER TABLE ONLY public.epochs
    ADD CONSTRAINT pk_epochs PRIMARY KEY (attempt_id, rank, epoch);
ALTER TABLE ONLY public.farm_identity
    ADD CONSTRAINT pk_farm_identity PRIMARY KEY (id);
ALTER TABLE ONLY public.job_events
    ADD CONSTRAINT pk_job_events PRIMARY KEY (id);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT pk_jobs PRIMARY KEY (id);
ALTER TABLE ONLY public.kept_answers
    ADD CONSTRAINT pk_kept_answers PRIMARY KEY (name);
ALTER TABLE ONLY public.late_reports
    ADD CONSTRAINT pk_late_reports PRIMARY KEY (id);
ALTER TABLE ONLY public.log_parts
    ADD CONSTRAINT pk_log_parts PRIMARY KEY (attempt_id, rank, first_character);
ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT pk_measurements PRIMARY KEY (id);
ALTER TABLE ONLY public.ranks
    ADD CONSTRAINT pk_ranks PRIMARY KEY (attempt_id, rank);
ALTER TABLE ONLY public.samples
    ADD CONSTRAINT pk_samples PRIMARY KEY (day, attempt_id, rank, tick);
ALTER TABLE ONLY public.spool_positions
    ADD CONSTRAINT pk_spool_positions PRIMARY KEY (agent_id, generation);
ALTER TABLE ONLY public.step_chunks
    ADD CONSTRAINT pk_step_chunks PRIMARY KEY (attempt_id, rank, first_step);
ALTER TABLE ONLY public.sweeps
    ADD CONSTRAINT pk_sweeps PRIMARY KEY (id);
ALTER TABLE ONLY public.samples_default
    ADD CONSTRAINT samples_default_pkey PRIMARY KEY (day, attempt_id, rank, tick);
ALTER TABLE ONLY public.api_tokens
    ADD CONSTRAINT uq_api_tokens_name UNIQUE (name);
ALTER TABLE ONLY public.api_tokens
    ADD CONSTRAINT uq_api_tokens_secret_hash UNIQUE (secret_hash);
ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT uq_attempts_job_id_number UNIQUE (job_id, number);
ALTER TABLE ONLY public.late_reports
    ADD CONSTRAINT uq_late_reports_agent_id_generation_number UNIQUE (agent_id, generation, number);
ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT uq_measurements_job_id UNIQUE (job_id);
ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT uq_measurements_origin_source_key UNIQUE (origin, source_key);
CREATE INDEX ix_agents_heartbeat_at ON public.agents USING btree (heartbeat_at);
CREATE INDEX ix_attempts_failure_kind_ended_at ON public.attempts USING btree (failure_kind, ended_at);
CREATE INDEX ix_attempts_state ON public.attempts USING btree (state);
CREATE INDEX ix_job_events_job_id ON public.job_events USING btree (job_id);
CREATE INDEX ix_jobs_cell_hash_sweep_id ON public.jobs USING btree (cell_hash, sweep_id);
CREATE INDEX ix_jobs_finished_at ON public.jobs USING btree (finished_at);
CREATE INDEX ix_jobs_progress ON public.jobs USING btree (sweep_id, state, finished_at, attempt_count, cancel_requested, id);
CREATE INDEX ix_jobs_state ON public.jobs USING btree (state);
CREATE INDEX ix_jobs_state_priority_due_at ON public.jobs USING btree (state, priority, due_at);
CREATE INDEX ix_measurements_question ON public.measurements USING btree (origin, model, dataset, global_batch_size);
CREATE INDEX ix_ranks_agent_id_attempt_id ON public.ranks USING btree (agent_id, attempt_id);
ALTER INDEX public.pk_samples ATTACH PARTITION public.samples_default_pkey;
ALTER TABLE ONLY public.attempts
    ADD CONSTRAINT fk_attempts_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id);
ALTER TABLE ONLY public.epochs
    ADD CONSTRAINT fk_epochs_attempt_id FOREIGN KEY (attempt_id) REFERENCES public.attempts(id);
ALTER TABLE ONLY public.job_events
    ADD CONSTRAINT fk_job_events_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id);
ALTER TABLE ONLY public.jobs
    ADD CONSTRAINT fk_jobs_sweep_id FOREIGN KEY (sweep_id) REFERENCES public.sweeps(id);
ALTER TABLE ONLY public.log_parts
    ADD CONSTRAINT fk_log_parts_attempt_id FOREIGN KEY (attempt_id) REFERENCES public.attempts(id);
ALTER TABLE ONLY public.measurements
    ADD CONSTRAINT fk_measurements_job_id FOREIGN KEY (job_id) REFERENCES public.jobs(id);
ALTER TABLE ONLY public.ranks
    ADD CONSTRAINT fk_ranks_agent_id FOREIGN KEY (agent_id) REFERENCES public.agents(id);
ALTER TABLE ONLY public.ranks
    ADD CONSTRAINT fk_ranks_attempt_id FOREIGN KEY (attempt_id) REFERENCES public.attempts(id);
ALTER TABLE ONLY public.step_chunks
    ADD CONSTRAINT fk_step_chunks_attempt_id FOREIGN KEY (attempt_id) REFERENCES public.attempts(id);
-- revision first_schema
-- revision script_bundles
CREATE TABLE script_bundles (
    sha256 VARCHAR(64) NOT NULL,
    byte_count INTEGER NOT NULL,
    piece_count INTEGER NOT NULL,
    added_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_script_bundles PRIMARY KEY (sha256)
);
CREATE TABLE script_bundle_pieces (
    sha256 VARCHAR(64) NOT NULL,
    number INTEGER NOT NULL,
    content BYTEA NOT NULL,
    CONSTRAINT pk_script_bundle_pieces PRIMARY KEY (sha256, number),
    CONSTRAINT fk_script_bundle_pieces_sha256 FOREIGN KEY(sha256)
        REFERENCES script_bundles (sha256) ON DELETE CASCADE
);
INSERT INTO script_bundles VALUES ('ab', 3, 1, '2026-03-01 12:00:00.000000');
INSERT INTO script_bundle_pieces VALUES ('ab', 0, '\x010203');
-- revision first_release
-- revision baselines
CREATE TABLE baselines (
    name VARCHAR(64) NOT NULL,
    sweep_id BIGINT NOT NULL,
    set_at TIMESTAMP WITH TIME ZONE NOT NULL,
    CONSTRAINT pk_baselines PRIMARY KEY (name),
    CONSTRAINT fk_baselines_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id)
);
INSERT INTO baselines VALUES ('nightly', 1, '2026-11-03 12:00:00.000000');
-- revision notifications
CREATE TABLE notification_targets (
    id BIGSERIAL NOT NULL,
    address TEXT NOT NULL,
    secret VARCHAR(64) NOT NULL,
    sweep_id BIGINT,
    created_at TIMESTAMP WITH TIME ZONE NOT NULL,
    removed_at TIMESTAMP WITH TIME ZONE,
    due_at TIMESTAMP WITH TIME ZONE NOT NULL,
    failure_count INTEGER NOT NULL,
    CONSTRAINT pk_notification_targets PRIMARY KEY (id),
    CONSTRAINT fk_notification_targets_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id)
);
CREATE INDEX ix_notification_targets_sweep_id ON notification_targets (sweep_id);
CREATE TABLE notification_events (
    id BIGSERIAL NOT NULL,
    kind VARCHAR(32) NOT NULL,
    subject VARCHAR(160) NOT NULL,
    at TIMESTAMP WITH TIME ZONE NOT NULL,
    sweep_id BIGINT,
    data JSON NOT NULL,
    CONSTRAINT pk_notification_events PRIMARY KEY (id),
    CONSTRAINT fk_notification_events_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id),
    CONSTRAINT uq_notification_events_kind_subject_at UNIQUE (kind, subject, at)
);
CREATE TABLE notification_deliveries (
    id BIGSERIAL NOT NULL,
    event_id BIGINT NOT NULL,
    target_id BIGINT NOT NULL,
    state VARCHAR(16) NOT NULL,
    attempt_count INTEGER NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE NOT NULL,
    last_at TIMESTAMP WITH TIME ZONE,
    last_said TEXT,
    CONSTRAINT pk_notification_deliveries PRIMARY KEY (id),
    CONSTRAINT fk_notification_deliveries_event_id FOREIGN KEY(event_id) REFERENCES notification_events (id),
    CONSTRAINT fk_notification_deliveries_target_id FOREIGN KEY(target_id) REFERENCES notification_targets (id),
    CONSTRAINT uq_notification_deliveries_event_id_target_id UNIQUE (event_id, target_id),
    CONSTRAINT ck_notification_deliveries_delivery_state CHECK (state IN ('waiting', 'delivered', 'given_up'))
);
CREATE INDEX ix_notification_deliveries_state_target_id ON notification_deliveries (state, target_id);
INSERT INTO notification_targets (address, secret, sweep_id, created_at, due_at, failure_count)
    VALUES ('https://example.org/hook', 's1', 1, '2026-11-03 12:00:00.000000', '2026-11-03 12:00:00.000000', 0);
INSERT INTO notification_events (kind, subject, at, sweep_id, data)
    VALUES ('sweep_finished', 'sweep 1', '2026-11-03 12:00:00.000000', 1, '{"jobs": 5}');
INSERT INTO notification_deliveries (event_id, target_id, state, attempt_count, due_at, last_said)
    VALUES (1, 1, 'waiting', 1, '2026-11-03 12:01:00.000000', '503');
-- revision tracker_cursors
CREATE TABLE tracker_cursors (
    tracker VARCHAR(32) NOT NULL,
    since_id BIGINT NOT NULL,
    sent_tokens JSON NOT NULL,
    tries JSON NOT NULL,
    due_at TIMESTAMP WITH TIME ZONE NOT NULL,
    failure_count INTEGER NOT NULL,
    trouble TEXT,
    sent_at TIMESTAMP WITH TIME ZONE,
    CONSTRAINT pk_tracker_cursors PRIMARY KEY (tracker)
);
INSERT INTO tracker_cursors
    VALUES ('mlflow', 2, '[3]', '{"4": 1}', '2026-11-03 12:00:00.000000', 1, 'no answer', NULL);
-- revision imported_samples
CREATE TABLE imported_samples (
    origin VARCHAR(64) NOT NULL,
    attempt_id BIGINT NOT NULL,
    rank INTEGER NOT NULL,
    tick INTEGER NOT NULL,
    job_id BIGINT NOT NULL,
    machine_cpu_ratio DOUBLE PRECISION,
    machine_steal_ratio DOUBLE PRECISION,
    cpu_ratio DOUBLE PRECISION,
    net_rx_bytes_per_s DOUBLE PRECISION,
    net_tx_bytes_per_s DOUBLE PRECISION,
    disk_read_bytes_per_s DOUBLE PRECISION,
    disk_write_bytes_per_s DOUBLE PRECISION,
    disk_read_operations_per_s DOUBLE PRECISION,
    disk_write_operations_per_s DOUBLE PRECISION,
    swap_bytes_per_s DOUBLE PRECISION,
    throttled_ratio DOUBLE PRECISION,
    memory_used_bytes BIGINT,
    resident_bytes BIGINT,
    span_ticks INTEGER DEFAULT '1' NOT NULL,
    extra JSON,
    CONSTRAINT pk_imported_samples PRIMARY KEY (origin, attempt_id, rank, tick)
);
INSERT INTO imported_samples (origin, attempt_id, rank, tick, job_id, cpu_ratio, extra)
    VALUES ('elsewhere', 9, 0, 1, 8, 0.5, '{"gpu_ratio": 0.25}');
-- revision agent_count
ALTER TABLE jobs RENAME rank_count TO agent_count;
-- revision budgets
ALTER TABLE sweeps ADD COLUMN budget_machine_s DOUBLE PRECISION;
ALTER TABLE sweeps ADD COLUMN budget_used_up_at TIMESTAMP WITH TIME ZONE;
UPDATE sweeps SET budget_machine_s = 3600, budget_used_up_at = '2026-11-03 12:00:00.000000';
-- revision step_processes
ALTER TABLE step_chunks ADD COLUMN process INTEGER DEFAULT '0' NOT NULL;
ALTER TABLE step_chunks DROP CONSTRAINT pk_step_chunks;
ALTER TABLE step_chunks ADD CONSTRAINT pk_step_chunks PRIMARY KEY (attempt_id, rank, process, first_step);
INSERT INTO step_chunks
    (attempt_id, rank, process, first_step, kind, begun_s, step_count, median_s, p95_s, times)
    VALUES (3, 0, 1, 0, 'timed', 0.5, 1, 0.1, 0.2, '\x0002');
