-- revision 0014
BEGIN TRANSACTION;
CREATE TABLE agent_keys (
	agent_id VARCHAR(128) NOT NULL,
	number INTEGER NOT NULL,
	made_at DATETIME NOT NULL,
	previous_until DATETIME,
	revoked_at DATETIME,
	CONSTRAINT pk_agent_keys PRIMARY KEY (agent_id)
);
INSERT INTO "agent_keys" VALUES('a1',3,'2026-11-01 12:00:00.000000',NULL,NULL);
CREATE TABLE agents (
	id VARCHAR(128) NOT NULL,
	boot_id VARCHAR(64) NOT NULL,
	beat_counter BIGINT NOT NULL,
	state VARCHAR(16) NOT NULL,
	heartbeat_at DATETIME,
	first_seen_at DATETIME NOT NULL,
	clock_offset_s DOUBLE,
	machine_id VARCHAR(128) NOT NULL,
	facts JSON NOT NULL,
	fingerprint VARCHAR(64) NOT NULL,
	is_drained BOOLEAN NOT NULL,
	attempt_id INTEGER,
	lease_expires_at DATETIME,
	lease_boot_id VARCHAR(64),
	unclean_token INTEGER,
	stop_sent_at DATETIME, template_bytes BIGINT, backlog_count BIGINT, backlog_bytes BIGINT, report_lag_s DOUBLE, disk_free_bytes BIGINT, is_removed BOOLEAN DEFAULT 0 NOT NULL,
	CONSTRAINT pk_agents PRIMARY KEY (id),
	CONSTRAINT ck_agents_agent_state CHECK (state IN ('idle', 'busy', 'spool_full', 'leaving'))
);
INSERT INTO "agents" VALUES('a1','boot of a1',7,'busy','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.25,'machine-1','{"machine_id": "machine-1", "address": "127.0.0.1", "interface": "lo", "first_port": 30000, "last_port": 30099, "cpus": [0], "labels": {"zone": "a"}, "capabilities": ["network"], "hardware": {"cpu_model": "A CPU", "core_count": 1, "memory_bytes": 8589934592, "kernel": "6.1.0", "tensorflow_version": "2.16.1", "python_version": "3.11.7", "benchfarm_version": "0.1.0"}}','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',0,2,'2026-03-01 12:05:00.000000','b',NULL,NULL,NULL,NULL,NULL,NULL,NULL,0);
INSERT INTO "agents" VALUES('a2','boot of a2',7,'idle','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',0.25,'machine-1','{"machine_id": "machine-1", "address": "127.0.0.1", "interface": "lo", "first_port": 30000, "last_port": 30099, "cpus": [0], "labels": {"zone": "a"}, "capabilities": ["network"], "hardware": {"cpu_model": "A CPU", "core_count": 1, "memory_bytes": 8589934592, "kernel": "6.1.0", "tensorflow_version": "2.16.1", "python_version": "3.11.7", "benchfarm_version": "0.1.0"}}','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',0,NULL,NULL,NULL,4,'2026-03-01 12:00:00.000000',NULL,NULL,NULL,NULL,NULL,0);
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL,
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0014');
CREATE TABLE api_tokens (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	name VARCHAR(64) NOT NULL,
	scope VARCHAR(16) NOT NULL,
	secret_hash VARCHAR(64) NOT NULL,
	created_at DATETIME NOT NULL,
	expires_at DATETIME,
	revoked_at DATETIME,
	last_used_at DATETIME,
	CONSTRAINT uq_api_tokens_name UNIQUE (name),
	CONSTRAINT ck_api_tokens_api_token_scope CHECK (scope IN ('read', 'submit', 'admin')),
	CONSTRAINT uq_api_tokens_secret_hash UNIQUE (secret_hash)
);
INSERT INTO "api_tokens" VALUES(1,'ops','admin','eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee','2026-11-01 12:00:00.000000',NULL,NULL,NULL);
CREATE TABLE attempts (
	id INTEGER NOT NULL PRIMARY KEY AUTOINCREMENT,
	job_id INTEGER NOT NULL,
	number INTEGER NOT NULL,
	state VARCHAR(16) NOT NULL,
	state_since DATETIME NOT NULL,
	leased_at DATETIME NOT NULL,
	started_at DATETIME,
	ended_at DATETIME,
	failure_kind VARCHAR(32),
	reason TEXT,
	CONSTRAINT uq_attempts_job_id_number UNIQUE (job_id, number),
	CONSTRAINT fk_attempts_job_id FOREIGN KEY(job_id) REFERENCES jobs (id),
	CONSTRAINT ck_attempts_attempt_state CHECK (state IN ('preparing', 'measuring', 'shaping', 'starting', 'running', 'succeeded', 'failed', 'lost', 'void', 'cancelled'))
);
INSERT INTO "attempts" VALUES(2,2,1,'running','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',NULL,NULL,NULL);
INSERT INTO "attempts" VALUES(3,3,1,'succeeded','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000','2026-03-01 12:05:00.000000',NULL,NULL);
INSERT INTO "attempts" VALUES(4,4,1,'failed','2026-03-01 12:00:00.000000','2026-03-01 12:00:00.000000',NULL,'2026-03-01 12:05:00.000000','out_of_memory','the kernel');
CREATE TABLE epochs (
	attempt_id INTEGER NOT NULL,
	rank INTEGER NOT NULL,
	epoch INTEGER NOT NULL,
	train_s DOUBLE NOT NULL,
	step_count INTEGER NOT NULL,
	train_loss DOUBLE,
	val_loss DOUBLE,
	val_accuracy_ratio DOUBLE,
	CONSTRAINT pk_epochs PRIMARY KEY (attempt_id, rank, epoch),
	CONSTRAINT fk_epochs_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempts (id)
);
INSERT INTO "epochs" VALUES(3,0,0,1.5,10,NULL,0.5,NULL);
CREATE TABLE farm_identity (
	id INTEGER NOT NULL,
	farm_id VARCHAR(32) NOT NULL,
	incarnation INTEGER NOT NULL,
	place TEXT,
	broker_id VARCHAR(32),
	broker_seen_at DATETIME,
	CONSTRAINT pk_farm_identity PRIMARY KEY (id)
);
INSERT INTO "farm_identity" VALUES(1,'abababababababababababababababab',2,NULL,'cdcdcdcdcdcdcdcdcdcdcdcdcdcdcdcd','2026-11-01 12:00:00.000000');
CREATE TABLE job_events (
	id INTEGER NOT NULL,
	job_id INTEGER NOT NULL,
	attempt_id INTEGER,
	at DATETIME NOT NULL,
	event VARCHAR(64) NOT NULL,
	reason TEXT,
	CONSTRAINT pk_job_events PRIMARY KEY (id),
	CONSTRAINT fk_job_events_job_id FOREIGN KEY(job_id) REFERENCES jobs (id)
);
INSERT INTO "job_events" VALUES(1,2,2,'2026-03-01 12:00:00.000000','job: leased',NULL);
INSERT INTO "job_events" VALUES(2,5,NULL,'2026-03-01 12:05:00.000000','job: cancelled','by somebody');
CREATE TABLE jobs (
	id INTEGER NOT NULL,
	sweep_id INTEGER NOT NULL,
	spec JSON NOT NULL,
	cell_hash VARCHAR(64) NOT NULL,
	model TEXT NOT NULL,
	dataset TEXT NOT NULL,
	strategy TEXT NOT NULL,
	world_size INTEGER NOT NULL,
	global_batch_size INTEGER NOT NULL,
	repetition INTEGER NOT NULL,
	priority INTEGER NOT NULL,
	state VARCHAR(16) NOT NULL,
	attempt_id INTEGER,
	attempt_count INTEGER NOT NULL,
	due_at DATETIME NOT NULL,
	cancel_requested BOOLEAN NOT NULL,
	failure_kind VARCHAR(32),
	reason TEXT,
	created_at DATETIME NOT NULL,
	finished_at DATETIME, rank_count INTEGER DEFAULT '1' NOT NULL, requires JSON DEFAULT '[]' NOT NULL,
	CONSTRAINT pk_jobs PRIMARY KEY (id),
	CONSTRAINT ck_jobs_leased_has_attempt CHECK ((state IN ('leased', 'running')) = (attempt_id IS NOT NULL)),
	CONSTRAINT fk_jobs_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id),
	CONSTRAINT ck_jobs_job_state CHECK (state IN ('waiting', 'leased', 'running', 'succeeded', 'failed', 'cancelled'))
);
INSERT INTO "jobs" VALUES(1,1,'{"model": "mlp", "dataset": "digits", "strategy": "mwms_ring", "world_size": 2, "global_batch_size": 32, "steps": 10, "epochs": null, "warmup_step_count": 2, "seed": 0, "training_pass": "forward_backward", "network": null, "repetition": 1}','d64a6a4cd5f476f7bbe9f205157410e5c5d3259c963a34581299ca9aaf0f294e','mlp','digits','mwms_ring',2,32,1,0,'waiting',NULL,0,'2026-03-01 12:00:00.000000',0,NULL,NULL,'2026-03-01 12:00:00.000000',NULL,2,'[]');
INSERT INTO "jobs" VALUES(2,1,'{"model": "mlp", "dataset": "digits", "strategy": "mwms_ring", "world_size": 2, "global_batch_size": 32, "steps": 10, "epochs": null, "warmup_step_count": 2, "seed": 0, "training_pass": "forward_backward", "network": null, "repetition": 2}','d64a6a4cd5f476f7bbe9f205157410e5c5d3259c963a34581299ca9aaf0f294e','mlp','digits','mwms_ring',2,32,2,0,'running',2,1,'2026-03-01 12:00:00.000000',0,NULL,NULL,'2026-03-01 12:00:00.000000',NULL,2,'["network"]');
INSERT INTO "jobs" VALUES(3,1,'{"model": "mlp", "dataset": "digits", "strategy": "mwms_ring", "world_size": 2, "global_batch_size": 32, "steps": 10, "epochs": null, "warmup_step_count": 2, "seed": 0, "training_pass": "forward_backward", "network": {"one_way_delay_s": 0.01, "jitter_s": 0.0, "packet_loss_ratio": 0.0}, "repetition": 3}','d5f155e25da9748522de8e1defdf43c0328b13885a3d284eef7d51dee5790e47','mlp','digits','mwms_ring',2,32,3,0,'succeeded',NULL,1,'2026-03-01 12:00:00.000000',0,NULL,NULL,'2026-03-01 12:00:00.000000','2026-03-01 12:05:00.000000',2,'["network"]');
INSERT INTO "jobs" VALUES(4,1,'{"model": "mlp", "dataset": "digits", "strategy": "mwms_ring", "world_size": 2, "global_batch_size": 32, "steps": 10, "epochs": null, "warmup_step_count": 2, "seed": 0, "training_pass": "forward_backward", "network": null, "repetition": 4, "of_nobody": 1}','cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc','mlp','digits','mwms_ring',2,32,4,0,'failed',NULL,1,'2026-03-01 12:00:00.000000',0,'out_of_memory',NULL,'2026-03-01 12:00:00.000000','2026-03-01 12:05:00.000000',2,'["network"]');
INSERT INTO "jobs" VALUES(5,1,'{"model": "mlp", "dataset": "digits", "strategy": "ps_sync", "world_size": 2, "global_batch_size": 32, "server_count": 1, "network": null, "emulator": null, "training_pass": "forward_backward", "steps": 10, "epochs": null, "warmup_step_count": 2, "seed": 0, "repetition": 5, "repeat": false, "labels": {}, "time_limit_s": 3600.0, "server_placement": "apart", "replicas_per_rank": 1, "steps_between_averages": 1, "placement": "soft", "batch_split": "even", "interface": null, "axes": {}}','cf26d0ed3f7f2f370c2c5924ab2904fd1d68d5586f04b5d06486ec47d2e8fa95','mlp','digits','mwms_ring',2,32,5,0,'cancelled',NULL,0,'2026-03-01 12:00:00.000000',1,NULL,NULL,'2026-03-01 12:00:00.000000','2026-03-01 12:05:00.000000',2,'["network"]');
CREATE TABLE kept_answers (
	name VARCHAR(64) NOT NULL,
	request_digest VARCHAR(64) NOT NULL,
	begun_at DATETIME NOT NULL,
	status INTEGER,
	body BLOB,
	content_type TEXT,
	location TEXT,
	CONSTRAINT pk_kept_answers PRIMARY KEY (name)
);
INSERT INTO "kept_answers" VALUES('kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk','dddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddddd','2026-11-01 12:00:00.000000',201,X'7B7D',NULL,NULL);
CREATE TABLE late_reports (
	id INTEGER NOT NULL,
	agent_id VARCHAR(128) NOT NULL,
	generation VARCHAR(64) NOT NULL,
	number BIGINT NOT NULL,
	token BIGINT NOT NULL,
	rank INTEGER NOT NULL,
	kind VARCHAR(32) NOT NULL,
	body JSON NOT NULL,
	received_at DATETIME NOT NULL,
	reason TEXT NOT NULL,
	CONSTRAINT pk_late_reports PRIMARY KEY (id),
	CONSTRAINT uq_late_reports_agent_id_generation_number UNIQUE (agent_id, generation, number)
);
INSERT INTO "late_reports" VALUES(1,'a2','g',5,1,0,'ended','{"result": null}','2026-03-01 12:00:00.000000','attempt 1 is over');
CREATE TABLE log_parts (
	attempt_id INTEGER NOT NULL,
	rank INTEGER NOT NULL,
	first_character INTEGER NOT NULL,
	text TEXT NOT NULL,
	CONSTRAINT pk_log_parts PRIMARY KEY (attempt_id, rank, first_character),
	CONSTRAINT fk_log_parts_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempts (id)
);
INSERT INTO "log_parts" VALUES(3,0,0,'it''s a log
');
CREATE TABLE measurements (
	id INTEGER NOT NULL,
	origin VARCHAR(64) NOT NULL,
	source_key VARCHAR(64) NOT NULL,
	job_id INTEGER,
	attempt_id INTEGER,
	created_at DATETIME NOT NULL,
	status VARCHAR(32) NOT NULL,
	model TEXT,
	dataset TEXT,
	training_pass VARCHAR(32) NOT NULL,
	framework TEXT,
	strategy TEXT,
	placement TEXT,
	network TEXT,
	instance_type TEXT,
	world_size INTEGER NOT NULL,
	server_count INTEGER NOT NULL,
	global_batch_size INTEGER NOT NULL,
	one_way_delay_s DOUBLE NOT NULL,
	bandwidth_bytes_per_s DOUBLE,
	packet_loss_ratio DOUBLE NOT NULL,
	jitter_s DOUBLE NOT NULL,
	repetition INTEGER NOT NULL,
	fingerprint VARCHAR(64),
	step_time_s DOUBLE,
	step_time_p25_s DOUBLE,
	step_time_p75_s DOUBLE,
	step_time_spread_s DOUBLE,
	timed_step_count INTEGER,
	steps_per_epoch INTEGER,
	time_per_epoch_s DOUBLE,
	epochs INTEGER,
	accuracy DOUBLE,
	throughput_examples_per_s DOUBLE,
	parameter_count BIGINT,
	gradient_bytes BIGINT,
	compute_s DOUBLE,
	communication_s DOUBLE,
	profiled_step_time_s DOUBLE,
	cpu_ratio DOUBLE,
	resident_bytes BIGINT,
	net_rx_bytes_per_s DOUBLE,
	net_tx_bytes_per_s DOUBLE,
	sent_bytes_per_step DOUBLE,
	rtt_s DOUBLE,
	details JSON NOT NULL, step_time_low_s DOUBLE, step_time_high_s DOUBLE, outlier_step_count INTEGER, control_ratio DOUBLE, flags JSON DEFAULT '[]' NOT NULL, measured_bandwidth_bytes_per_s DOUBLE, server_placement VARCHAR(16), replicas_per_rank INTEGER, steps_between_averages INTEGER, batch_split VARCHAR(16), received_bytes_per_step DOUBLE, idle_ratio DOUBLE, push_s DOUBLE, pull_s DOUBLE, update_count INTEGER, staleness_mean DOUBLE, staleness_max INTEGER, loaded_rtt_s DOUBLE,
	CONSTRAINT pk_measurements PRIMARY KEY (id),
	CONSTRAINT uq_measurements_origin_source_key UNIQUE (origin, source_key),
	CONSTRAINT uq_measurements_job_id UNIQUE (job_id),
	CONSTRAINT fk_measurements_job_id FOREIGN KEY(job_id) REFERENCES jobs (id)
);
INSERT INTO "measurements" VALUES(1,'farm','job 3',3,3,'2026-03-01 12:05:00.000000','ok','mlp','digits','forward_backward',NULL,'mwms_ring',NULL,NULL,NULL,2,0,32,0.01,NULL,0.0,0.0,0,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',0.1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"why": "not"}',NULL,NULL,NULL,NULL,'[]',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "measurements" VALUES(2,'farm','job 3.2',NULL,3,'2026-03-01 12:05:00.000000','ok','mlp','digits','forward_backward',NULL,'mwms_ring',NULL,NULL,NULL,2,0,32,0.01,NULL,0.0,0.0,0,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',0.1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"why": "not"}',NULL,NULL,NULL,NULL,'[{"kind": "steal", "message": "agent a1, rank 0: 12 % of its cores was taken by the hypervisor (limit 10 %)"}]',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "measurements" VALUES(3,'farm','job 3.3',NULL,3,'2026-03-01 12:05:00.000000','ok','mlp','digits','forward_backward',NULL,'mwms_ring',NULL,NULL,NULL,2,0,32,0.01,NULL,0.0,0.0,0,'ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff',0.1,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"why": "not"}',NULL,NULL,NULL,NULL,'[{"kind": "swap", "message": "agent a1, rank 0: 3.5 MB/s went to and from swap (limit 1.0 MB/s)", "value": 3500000.0}, {"kind": "outliers", "message": "no figure here"}]',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE ranks (
	attempt_id INTEGER NOT NULL,
	rank INTEGER NOT NULL,
	agent_id VARCHAR(128) NOT NULL,
	phase VARCHAR(16) NOT NULL,
	commanded_at DATETIME,
	hardware JSON NOT NULL,
	prepared JSON,
	peers JSON,
	shaped JSON,
	started JSON,
	ended JSON,
	ended_at DATETIME, control_s DOUBLE, disturbed_by TEXT,
	CONSTRAINT pk_ranks PRIMARY KEY (attempt_id, rank),
	CONSTRAINT fk_ranks_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempts (id),
	CONSTRAINT fk_ranks_agent_id FOREIGN KEY(agent_id) REFERENCES agents (id),
	CONSTRAINT ck_ranks_rank_phase CHECK (phase IN ('leased', 'prepared', 'measured', 'shaped', 'started', 'ended'))
);
INSERT INTO "ranks" VALUES(2,0,'a1','started',NULL,'{"cpu_model": "A CPU", "core_count": 1, "memory_bytes": 8589934592, "kernel": "6.1.0", "tensorflow_version": "2.16.1", "python_version": "3.11.7", "benchfarm_version": "0.1.0"}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "ranks" VALUES(3,0,'a1','ended',NULL,'{"cpu_model": "A CPU", "core_count": 1, "memory_bytes": 8589934592, "kernel": "6.1.0", "tensorflow_version": "2.16.1", "python_version": "3.11.7", "benchfarm_version": "0.1.0"}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "ranks" VALUES(3,1,'a2','ended',NULL,'{"cpu_model": "A CPU", "core_count": 1, "memory_bytes": 8589934592, "kernel": "6.1.0", "tensorflow_version": "2.16.1", "python_version": "3.11.7", "benchfarm_version": "0.1.0"}',NULL,NULL,NULL,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE samples (
	day DATE NOT NULL,
	attempt_id INTEGER NOT NULL,
	rank INTEGER NOT NULL,
	tick INTEGER NOT NULL,
	machine_cpu_ratio DOUBLE,
	machine_steal_ratio DOUBLE,
	cpu_ratio DOUBLE,
	memory_used_bytes BIGINT,
	resident_bytes BIGINT,
	net_rx_bytes_per_s DOUBLE,
	net_tx_bytes_per_s DOUBLE,
	disk_read_bytes_per_s DOUBLE,
	disk_write_bytes_per_s DOUBLE,
	disk_read_operations_per_s DOUBLE,
	disk_write_operations_per_s DOUBLE,
	extra JSON, swap_bytes_per_s DOUBLE, throttled_ratio DOUBLE, span_ticks INTEGER DEFAULT '1' NOT NULL,
	CONSTRAINT pk_samples PRIMARY KEY (day, attempt_id, rank, tick)
);
INSERT INTO "samples" VALUES('2026-03-01',3,0,0,NULL,NULL,0.5,17179869184,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'null',NULL,NULL,1);
INSERT INTO "samples" VALUES('2026-03-01',3,0,1,NULL,NULL,0.5,17179869184,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"gpu0_ratio": 0.25}',NULL,NULL,1);
INSERT INTO "samples" VALUES('2026-03-01',3,0,2,NULL,NULL,0.5,17179869184,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"gpu0_ratio": 0.25}',NULL,NULL,1);
INSERT INTO "samples" VALUES('2026-03-01',3,1,0,NULL,NULL,0.5,17179869184,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'null',NULL,NULL,1);
INSERT INTO "samples" VALUES('2026-03-01',3,1,1,NULL,NULL,0.5,17179869184,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"gpu0_ratio": 0.25}',NULL,NULL,1);
INSERT INTO "samples" VALUES('2026-03-01',3,1,2,NULL,NULL,0.5,17179869184,NULL,NULL,NULL,NULL,NULL,NULL,NULL,'{"gpu0_ratio": 0.25}',NULL,NULL,1);
CREATE TABLE spool_positions (
	agent_id VARCHAR(128) NOT NULL,
	generation VARCHAR(64) NOT NULL,
	confirmed_number BIGINT NOT NULL,
	updated_at DATETIME NOT NULL, late_count BIGINT DEFAULT '0' NOT NULL, late_hour_count BIGINT DEFAULT '0' NOT NULL, late_hour DATETIME,
	CONSTRAINT pk_spool_positions PRIMARY KEY (agent_id, generation)
);
INSERT INTO "spool_positions" VALUES('a1','g',41,'2026-03-01 12:00:00.000000',0,0,NULL);
CREATE TABLE step_chunks (
	attempt_id INTEGER NOT NULL,
	rank INTEGER NOT NULL,
	first_step INTEGER NOT NULL,
	kind VARCHAR(16) NOT NULL,
	begun_s DOUBLE NOT NULL,
	step_count INTEGER NOT NULL,
	median_s DOUBLE NOT NULL,
	p95_s DOUBLE NOT NULL,
	times BLOB NOT NULL,
	CONSTRAINT pk_step_chunks PRIMARY KEY (attempt_id, rank, first_step),
	CONSTRAINT fk_step_chunks_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempts (id),
	CONSTRAINT ck_step_chunks_step_kind CHECK (kind IN ('warmup', 'timed', 'partial', 'profiled'))
);
INSERT INTO "step_chunks" VALUES(3,0,0,'timed',0.5,1,0.1,0.2,X'0001');
CREATE TABLE sweeps (
	id INTEGER NOT NULL,
	name TEXT NOT NULL,
	spec JSON NOT NULL,
	skipped JSON NOT NULL,
	created_at DATETIME NOT NULL, is_paused BOOLEAN DEFAULT 0 NOT NULL,
	CONSTRAINT pk_sweeps PRIMARY KEY (id)
);
INSERT INTO "sweeps" VALUES(1,'old','{"name": "old"}','["x"]','2026-03-01 12:00:00.000000',0);
CREATE INDEX ix_jobs_state ON jobs (state);
CREATE INDEX ix_jobs_state_priority_due_at ON jobs (state, priority, due_at);
CREATE INDEX ix_agents_heartbeat_at ON agents (heartbeat_at);
CREATE INDEX ix_attempts_state ON attempts (state);
CREATE INDEX ix_job_events_job_id ON job_events (job_id);
CREATE INDEX ix_measurements_question ON measurements (origin, model, dataset, global_batch_size);
CREATE INDEX ix_jobs_cell_hash_sweep_id ON jobs (cell_hash, sweep_id);
CREATE INDEX ix_ranks_agent_id_attempt_id ON ranks (agent_id, attempt_id);
CREATE INDEX ix_jobs_progress ON jobs (sweep_id, state, finished_at, attempt_count, cancel_requested, id);
CREATE INDEX ix_jobs_finished_at ON jobs (finished_at);
CREATE INDEX ix_attempts_failure_kind_ended_at ON attempts (failure_kind, ended_at);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('attempts',4);
INSERT INTO "sqlite_sequence" VALUES('api_tokens',1);
COMMIT;
-- revision first_schema
-- revision script_bundles
CREATE TABLE script_bundles (
    sha256 VARCHAR(64) NOT NULL,
    byte_count INTEGER NOT NULL,
    piece_count INTEGER NOT NULL,
    added_at DATETIME NOT NULL,
    CONSTRAINT pk_script_bundles PRIMARY KEY (sha256)
);
CREATE TABLE script_bundle_pieces (
    sha256 VARCHAR(64) NOT NULL,
    number INTEGER NOT NULL,
    content BLOB NOT NULL,
    CONSTRAINT pk_script_bundle_pieces PRIMARY KEY (sha256, number),
    CONSTRAINT fk_script_bundle_pieces_sha256 FOREIGN KEY(sha256)
        REFERENCES script_bundles (sha256) ON DELETE CASCADE
);
INSERT INTO script_bundles VALUES ('ab', 3, 1, '2026-03-01 12:00:00.000000');
INSERT INTO script_bundle_pieces VALUES ('ab', 0, X'010203');
-- revision first_release
-- revision baselines
CREATE TABLE baselines (
    name VARCHAR(64) NOT NULL,
    sweep_id INTEGER NOT NULL,
    set_at DATETIME NOT NULL,
    CONSTRAINT pk_baselines PRIMARY KEY (name),
    CONSTRAINT fk_baselines_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id)
);
INSERT INTO baselines VALUES ('nightly', 1, '2026-11-03 12:00:00.000000');
-- revision notifications
CREATE TABLE notification_targets (
    id INTEGER NOT NULL,
    address TEXT NOT NULL,
    secret VARCHAR(64) NOT NULL,
    sweep_id INTEGER,
    created_at DATETIME NOT NULL,
    removed_at DATETIME,
    due_at DATETIME NOT NULL,
    failure_count INTEGER NOT NULL,
    CONSTRAINT pk_notification_targets PRIMARY KEY (id),
    CONSTRAINT fk_notification_targets_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id)
);
CREATE INDEX ix_notification_targets_sweep_id ON notification_targets (sweep_id);
CREATE TABLE notification_events (
    id INTEGER NOT NULL,
    kind VARCHAR(32) NOT NULL,
    subject VARCHAR(160) NOT NULL,
    at DATETIME NOT NULL,
    sweep_id INTEGER,
    data JSON NOT NULL,
    CONSTRAINT pk_notification_events PRIMARY KEY (id),
    CONSTRAINT fk_notification_events_sweep_id FOREIGN KEY(sweep_id) REFERENCES sweeps (id),
    CONSTRAINT uq_notification_events_kind_subject_at UNIQUE (kind, subject, at)
);
CREATE TABLE notification_deliveries (
    id INTEGER NOT NULL,
    event_id INTEGER NOT NULL,
    target_id INTEGER NOT NULL,
    state VARCHAR(16) NOT NULL,
    attempt_count INTEGER NOT NULL,
    due_at DATETIME NOT NULL,
    last_at DATETIME,
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
    since_id INTEGER NOT NULL,
    sent_tokens JSON NOT NULL,
    tries JSON NOT NULL,
    due_at DATETIME NOT NULL,
    failure_count INTEGER NOT NULL,
    trouble TEXT,
    sent_at DATETIME,
    CONSTRAINT pk_tracker_cursors PRIMARY KEY (tracker)
);
INSERT INTO tracker_cursors
    VALUES ('mlflow', 2, '[3]', '{"4": 1}', '2026-11-03 12:00:00.000000', 1, 'no answer', NULL);
-- revision imported_samples
CREATE TABLE imported_samples (
    origin VARCHAR(64) NOT NULL,
    attempt_id INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    tick INTEGER NOT NULL,
    job_id INTEGER NOT NULL,
    machine_cpu_ratio DOUBLE,
    machine_steal_ratio DOUBLE,
    cpu_ratio DOUBLE,
    net_rx_bytes_per_s DOUBLE,
    net_tx_bytes_per_s DOUBLE,
    disk_read_bytes_per_s DOUBLE,
    disk_write_bytes_per_s DOUBLE,
    disk_read_operations_per_s DOUBLE,
    disk_write_operations_per_s DOUBLE,
    swap_bytes_per_s DOUBLE,
    throttled_ratio DOUBLE,
    memory_used_bytes BIGINT,
    resident_bytes BIGINT,
    span_ticks INTEGER DEFAULT '1' NOT NULL,
    extra JSON,
    CONSTRAINT pk_imported_samples PRIMARY KEY (origin, attempt_id, rank, tick)
);
INSERT INTO imported_samples (origin, attempt_id, rank, tick, job_id, cpu_ratio, extra)
    VALUES ('elsewhere', 9, 0, 1, 8, 0.5, '{"gpu_ratio": 0.25}');
-- revision agent_count
ALTER TABLE jobs RENAME COLUMN rank_count TO agent_count;
-- revision budgets
ALTER TABLE sweeps ADD COLUMN budget_machine_s DOUBLE;
ALTER TABLE sweeps ADD COLUMN budget_used_up_at DATETIME;
UPDATE sweeps SET budget_machine_s = 3600, budget_used_up_at = '2026-11-03 12:00:00.000000';
-- revision step_processes
CREATE TABLE _alembic_tmp_step_chunks (
    attempt_id INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    first_step INTEGER NOT NULL,
    kind VARCHAR(16) NOT NULL,
    begun_s DOUBLE NOT NULL,
    step_count INTEGER NOT NULL,
    median_s DOUBLE NOT NULL,
    p95_s DOUBLE NOT NULL,
    times BLOB NOT NULL,
    process INTEGER DEFAULT '0' NOT NULL,
    CONSTRAINT pk_step_chunks PRIMARY KEY (attempt_id, rank, process, first_step),
    CONSTRAINT ck_step_chunks_step_kind CHECK (kind IN ('warmup', 'timed', 'partial', 'profiled')),
    CONSTRAINT fk_step_chunks_attempt_id FOREIGN KEY(attempt_id) REFERENCES attempts (id)
);
INSERT INTO _alembic_tmp_step_chunks (attempt_id, rank, first_step, kind, begun_s, step_count, median_s, p95_s, times) SELECT step_chunks.attempt_id, step_chunks.rank, step_chunks.first_step, step_chunks.kind, step_chunks.begun_s, step_chunks.step_count, step_chunks.median_s, step_chunks.p95_s, step_chunks.times
FROM step_chunks;
DROP TABLE step_chunks;
ALTER TABLE _alembic_tmp_step_chunks RENAME TO step_chunks;
INSERT INTO step_chunks
    (attempt_id, rank, process, first_step, kind, begun_s, step_count, median_s, p95_s, times)
    VALUES (3, 0, 1, 0, 'timed', 0.5, 1, 0.1, 0.2, X'0002');
