BEGIN TRANSACTION;
CREATE TABLE keys (
	id INTEGER NOT NULL, 
	task TEXT NOT NULL, 
	target TEXT NOT NULL, 
	space TEXT NOT NULL, 
	tvm TEXT NOT NULL, 
	PRIMARY KEY (id), 
	CONSTRAINT one_key UNIQUE (task, target, space, tvm), 
	FOREIGN KEY(task) REFERENCES workloads (task), 
	FOREIGN KEY(target) REFERENCES targets (fingerprint)
);
INSERT INTO "keys" VALUES(1,'f00d','llvm-avx512-test','conv2d/1','0.27.0');
CREATE TABLE records (
	id INTEGER NOT NULL, 
	digest BLOB NOT NULL, 
	key_id INTEGER NOT NULL, 
	config TEXT NOT NULL, 
	config_hash BIGINT NOT NULL, 
	latency_s DOUBLE, 
	latencies_s BLOB, 
	error TEXT, 
	message TEXT NOT NULL, 
	compile_s DOUBLE NOT NULL, 
	run_s DOUBLE NOT NULL, 
	code_hash TEXT NOT NULL, 
	trace BLOB NOT NULL, 
	measured_at DOUBLE NOT NULL, 
	host TEXT NOT NULL, 
	seed TEXT NOT NULL, 
	provenance TEXT NOT NULL, 
	PRIMARY KEY (id), 
	FOREIGN KEY(key_id) REFERENCES keys (id)
);
INSERT INTO "records" VALUES(1,X'E2C9593506471A6A40693A6B81F0D41F',1,'{"space":"conv2d/1","knobs":{"tile":[1,4],"unroll":1,"order":"nhwc"}}',5778425253245062295,1.5,X'000000000000F03F0000000000000040',NULL,'',0.0,0.0,'',X'',1.0,'a','1','{}');
INSERT INTO "records" VALUES(2,X'C4FCFCDC5F2DD5122B3DEA5633508E7A',1,'{"space":"conv2d/1","knobs":{"tile":[2,4],"unroll":2,"order":"nhwc"}}',8654943745005853001,NULL,NULL,'compile_error','no',0.0,0.0,'',X'',2.0,'','0','{}');
INSERT INTO "records" VALUES(3,X'37F43C727E2181CB5C0F3C93B9DE32D8',1,'{"space":"conv2d/1","knobs":{"tile":[1,4],"unroll":1,"order":"nhwc"}}',5778425253245062295,3.0,X'0000000000000840',NULL,'',0.0,0.0,'',X'',3.0,'a','1','{}');
CREATE TABLE targets (
	fingerprint TEXT NOT NULL, 
	description TEXT, 
	PRIMARY KEY (fingerprint)
);
INSERT INTO "targets" VALUES('llvm-avx512-sapphirerapids-2t-f2b69cb342','{"arch": "", "features": [], "isa": "avx512", "kind": "llvm", "l1_bytes": 32768, "l2_bytes": 1048576, "l3_bytes": 16777216, "max_threads": 0, "mcpu": "sapphirerapids", "registers": 0, "shared_bytes": 0, "threads": 2}');
INSERT INTO "targets" VALUES('llvm-avx512-test',NULL);
CREATE TABLE tuning_log_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT tuning_log_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "tuning_log_version" VALUES('0001');
CREATE TABLE workloads (
	task TEXT NOT NULL, 
	program BLOB, 
	sha256 TEXT, 
	PRIMARY KEY (task)
);
INSERT INTO "workloads" VALUES('f00d',X'7801AB562A28CA4F2F4ACC55B252503ABC52A9160037FC063F','f467eef9fa66266df2b905b30c3da33623d908c0f5aff0917ff9c572ab9339c5');
CREATE INDEX keys_of_space ON keys (space, target, tvm);
CREATE UNIQUE INDEX one_record ON records (digest);
CREATE INDEX records_by_age ON records (key_id, measured_at, id);
CREATE INDEX all_by_age ON records (measured_at, id);
CREATE INDEX records_by_speed ON records (key_id, latency_s, measured_at, id) WHERE latency_s IS NOT NULL;
CREATE INDEX records_by_config ON records (key_id, config_hash, measured_at, id) WHERE latency_s IS NOT NULL;
CREATE INDEX records_by_error ON records (key_id, error) WHERE error IS NOT NULL;
COMMIT;
