-- Replaces or removes a record if it has the expected value.
-- KEYS[1]: the record.
-- ARGV: the expected value or its beginning, empty if there should be none; the new value, empty to remove
-- it; its lifetime in milliseconds, 0 if it stays.
-- Returns 1 if the record was changed, otherwise 0.
if ARGV[1] == '' then
  if redis.call('EXISTS', KEYS[1]) == 1 then return 0 end
elseif redis.call('GETRANGE', KEYS[1], 0, #ARGV[1] - 1) ~= ARGV[1] then
  return 0
end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
elseif ARGV[3] == '0' then
  redis.call('SET', KEYS[1], ARGV[2])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 1
