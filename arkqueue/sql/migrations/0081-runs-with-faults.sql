-- The overview finds the runs whose workflow files have faults without reading the head of each branch.
create index run_faulty on run (revision_id) where faults <> '[]';
