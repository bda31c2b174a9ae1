-- When the latest attempt of a delivery began, so that its log can tell what is being sent from what
-- waits for its next attempt.
alter table deliveries add column begun_at timestamptz;
