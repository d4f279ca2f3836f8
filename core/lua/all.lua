-- Exclusive holds of several keys: all or none.
--
-- KEYS  1          the fence counter that these locks share
--       2 ..       the locks
-- ARGV  1          the TTL in ms
--       2          meta
--       3 ..       for each lock: owner
-- Reply as lua/lock.lua's, one answer for each lock: G for all of them; or, when one is not free, R, C or X for those that
-- are not, and R,0,0, for the rest.
local call = redis.call
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local replies, free = {}, true

-- Whether nothing lives in a set but the completed mark that a holder has left, as in lua/lock.lua.
local function completed(lock)
  local nowms = math.floor(now / 1000)
  local mark = tonumber(call('ZSCORE', lock, 'c') or nil)
  return mark and mark > nowms and call('ZCOUNT', lock, '(' .. string.format('%.0f', nowms), '+inf') == 1
end

local function taken(lock, form)
  local left = call('PTTL', lock)
  if left == -1 or form ~= 'string' and form ~= 'zset' then
    return 'X'
  end
  left = left < 1 and 1 or left -- 0 in its last millisecond, which would mean that it is not held
  local value = form == 'string' and call('GET', lock) or ''
  if string.sub(value, 1, 10) == 'completed:' or form == 'zset' and completed(lock) then
    return 'C,' .. left
  end
  local note = string.match(value, '^%x+[:*]%d+:[^%z]*%z(.*)$') or ''
  return 'R,' .. left .. ',' .. #note .. ',' .. note
end

for i = 2, #KEYS do
  local form = call('TYPE', KEYS[i]).ok
  if form == 'none' then
    replies[i - 1] = 'R,0,0,'
  else
    replies[i - 1], free = taken(KEYS[i], form), false
  end
end
if free then
  -- Fences grow by key, so one serves all.
  local fence = string.format('%.0f', math.max(now, tonumber(call('GET', KEYS[1]) or '0') + 1))
  for i = 2, #KEYS do
    call('SET', KEYS[i], ARGV[i + 1] .. ':' .. fence .. ':' .. clock[1] .. '.' .. clock[2] .. ':' .. ARGV[2], 'PX', ARGV[1])
    replies[i - 1] = 'G,' .. fence .. ',1,0'
  end
  call('SET', KEYS[1], fence)
end
replies[#replies + 1] = ''
return table.concat(replies, ';')
