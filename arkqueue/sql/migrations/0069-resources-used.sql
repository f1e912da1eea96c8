-- An attempt's end tells the resources that it used. Of attempts from before, nothing is known.
alter table attempt add column processor_seconds float8, add column peak_memory_bytes bigint, add column usage_sampled boolean;
