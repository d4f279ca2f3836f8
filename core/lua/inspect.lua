-- Tells who holds a lock, or takes it from whoever does.
--
-- KEYS  1  the lock
--       2  its companion wait, whose name is also the channel on which a release is told
--       3  its companion hold
-- ARGV  1  "i" inspect, "f" force
--       2  PUBLISH or SPUBLISH
--       3  how many holders to tell of at most
-- Reply one string:
--       N,waiters,                             free, or freed
--       S,waiters,ms,count,length,value,       a string, and how many processes take part in its hold
--       Z,waiters,n, and n times member,ms,length,text,     holders of other kinds; see lua/kinds.lua
--       X,                                     not a lock
local call = redis.call
local lock, wait, hold = KEYS[1], KEYS[2], KEYS[3]
local clock = call('TIME')
local nowms = math.floor((clock[1] * 1000000 + clock[2]) / 1000)

local function int(n)
  return string.format('%.0f', n)
end

local waiters = call('ZCOUNT', wait, nowms, '(1e15') + call('ZCOUNT', wait, int(1e15 + nowms), '(2e15')
  + call('ZCOUNT', wait, int(2e15 + nowms), '+inf')

local function parts(value)
  local all = call('HGETALL', hold)
  local count, root = 0, nil
  for i = 1, #all, 2 do
    if all[i] == 'root' then
      root = all[i + 1]
    elseif all[i] ~= 'keep' and tonumber(all[i + 1] or nil) and tonumber(all[i + 1]) > nowms then
      count = count + 1
    end
  end
  return root == string.sub(value, 1, 32) and count or 1
end

local function members()
  local all = call('ZRANGEBYSCORE', lock, '(' .. int(nowms), '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
  local reply = { 'Z', waiters, #all / 2 }
  for i = 1, #all, 2 do
    local text = call('HGET', hold, string.sub(all[i], 2)) or ''
    reply[#reply + 1] = all[i] .. ',' .. int(tonumber(all[i + 1]) - nowms) .. ',' .. #text .. ',' .. text
  end
  return table.concat(reply, ',') .. ','
end

local form = call('TYPE', lock).ok
if form == 'none' then
  return 'N,' .. waiters .. ','
end
local left = call('PTTL', lock)
if left == -1 or form ~= 'string' and form ~= 'zset' then
  return 'X,'
end
if form == 'zset' then
  local first = call('ZRANGE', lock, 0, 0)[1]
  if first ~= 'c' and not string.find(first, '^[sl]%x+$') then
    return 'X,'
  end
end
if ARGV[1] == 'f' then
  call('DEL', lock, hold)
  call(ARGV[2], wait, '')
  return 'N,' .. waiters .. ','
end
if form == 'zset' then
  return members()
end
local value = call('GET', lock)
return 'S,' .. waiters .. ',' .. left .. ',' .. parts(value) .. ',' .. #value .. ',' .. value .. ','
