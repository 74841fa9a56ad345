-- Returns calls of a quota that were leased, and not used.
local sum = tonumber(redis.call('GET', KEYS[1]) or '0') or 0
local returned = math.min(sum, tonumber(ARGV[1]))
if returned > 0 then redis.call('DECRBY', KEYS[1], returned) end
return returned
