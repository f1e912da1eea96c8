-- Whether a task manager lives that has a scratch folder (design 5.37).
create index task_manager_store on task_manager (store);
