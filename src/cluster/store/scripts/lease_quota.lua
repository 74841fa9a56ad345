-- Leases calls of a quota, up to its limit.
-- KEYS[1]: the number of leased calls.
-- ARGV: the limit; the fewest and the most calls to lease; the lifetime in milliseconds.
-- Returns the leased calls, and the sum of all leased ones.
local sum = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
local leased = math.min(tonumber(ARGV[3]), math.max(0, tonumber(ARGV[1]) - sum))
if leased < tonumber(ARGV[2]) then leased = 0 end
if leased > 0 then
  sum = redis.call('INCRBY', KEYS[1], leased)
  redis.call('PEXPIRE', KEYS[1], ARGV[4])
end
return {leased, sum}
