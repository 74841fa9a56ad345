-- Writes or removes the record of a session if it has the expected version, under the leases of replicas.
-- KEYS[1]: the record. KEYS[2]: the lease of the writer. KEYS[3], if there is one: the lease of the replica
-- from which the session is taken.
-- ARGV: the expected version, empty if there should be no record; the new record, empty to remove it; its
-- lifetime in milliseconds.
-- Returns 0 if the record was written, 1 if it has another version, 2 if there is none, 3 if the writer has
-- no lease, and 4 if the other replica has one. A value of another type has another version.
if ARGV[2] ~= '' and redis.call('EXISTS', KEYS[2]) == 0 then return 3 end
if #KEYS == 3 and redis.call('EXISTS', KEYS[3]) == 1 then return 4 end
local version = redis.pcall('GETRANGE', KEYS[1], 0, 11)
if type(version) == 'table' then return 1 end
if version ~= ARGV[1] then
  if version == '' then return 2 end
  return 1
end
if ARGV[2] == '' then
  redis.call('DEL', KEYS[1])
else
  redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
end
return 0
