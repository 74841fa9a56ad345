-- Takes permits of a rate: GCRA, with the time of the store.
-- KEYS[1]: the time at which the bucket is full again, in microseconds since 1970.
-- ARGV: the period in which a full bucket is refilled, in microseconds; the permits of a full bucket;
-- the fewest and the most permits to take.
-- Returns the taken permits, the microseconds until the fewest are there, and the permits left; nothing
-- for a value that is no time, which is removed.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000000 + tonumber(time[2])
local period, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
local least, most = tonumber(ARGV[3]), tonumber(ARGV[4])
local each = period / burst
local stored = redis.pcall('GET', KEYS[1]) or '0'
local full = type(stored) == 'string' and tonumber(stored)
-- The last comparison is true for a value that is not a number (`nan`).
if not full or full ~= full then
  redis.call('DEL', KEYS[1])
  return {}
end
full = math.min(math.max(full, now), now + period)
local left = math.floor((now + period - full) / each + 0.000001)
local taken = math.min(most, left)
if taken < least then taken = 0 end
full = full + taken * each
if taken > 0 then
  redis.call('SET', KEYS[1], string.format('%.2f', full), 'PX', math.ceil((full - now) / 1000) + 1)
end
local wait = math.max(0, math.ceil(full + least * each - period - now))
return {taken, wait, left - taken}
