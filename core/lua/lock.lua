-- Exclusive holds: a batch of operations, carried out in order.
--
-- KEYS  1          the fence counter that all locks of this batch share
--       2i, 2i+1   the lock of operation i, and its companion: the set of engines that wait for it, whose name is also
--                  the channel on which a release is told
-- ARGV  1          the engine that asks
--       2          PUBLISH or SPUBLISH
--       3          for how long a waiter counts, in ms
--       5i-1 ..    operation i: action, owner, ms, n, meta
-- Actions: t try, w try and wait, e extend, r release, k release but keep others out, f refill, l leave.
-- Reply one string, operations apart by ";", fields by ",":
--       G,fence,n,outside   granted, with the fences fence .. fence+n-1
--       R,ms,note           refused: the holder's TTL
--       C,ms                refused: completed
--       O,fence,n,outside   done
--       A absent, F held by another, X not a lock
--
-- A lock is a string: owner ":" fence ":" seconds "." microseconds ":" meta, with a TTL. Fences are formatted, for Lua
-- turns large numbers into 1.7e+15.
local call, pcall = redis.call, redis.pcall
local engine, publish, waiting = ARGV[1], ARGV[2], ARGV[3]
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local nowms = math.floor(now / 1000)
local counter, spent

-- The fences first .. first+n-1: above all before, and not ahead of the clock unless the counter is, so that a server
-- that has lost its memory, and starts at its clock, is above all that it has given.
local function reserve(n)
  if not counter then
    counter = tonumber(call('GET', KEYS[1]) or '0')
  end
  local room = now - counter
  if n > room then
    n = room < 1 and 1 or room
  end
  local first = now - n + 1
  if first <= counter then
    first = counter + 1
  end
  return first, n
end

local function others(companion)
  local count = call('ZCOUNT', companion, nowms, '+inf')
  if count > 0 then
    local own = call('ZSCORE', companion, engine)
    if own and tonumber(own) >= nowms then
      count = count - 1
    end
  end
  return count
end

-- What stands at the lock: its string, false when there is none, nil when it is no string.
local function read(lock)
  local value = pcall('GET', lock)
  if type(value) == 'table' then
    return nil
  end
  return value
end

local function granted(fence, n, outside)
  return 'G,' .. string.format('%.0f', fence) .. ',' .. n .. ',' .. outside
end

local function refuse(lock, companion, owner, waits)
  local value = read(lock)
  if value and string.sub(value, 1, 32) == owner then
    -- A replay finds itself.
    return 'G,' .. string.match(value, '^%x+:(%d+):') .. ',1,0'
  end
  local left = call('PTTL', lock)
  if left == -1 or (value == nil and call('TYPE', lock).ok ~= 'zset') then
    return 'X'
  end
  if value and string.sub(value, 1, 10) == 'completed:' then
    return 'C,' .. left
  end
  if waits then
    call('ZREMRANGEBYSCORE', companion, '-inf', nowms - 1)
    call('ZADD', companion, nowms + waiting, engine)
    call('PEXPIRE', companion, waiting * 2)
  end
  local note = ''
  if value then
    note = string.match(value, '%z(.*)$') or ''
  end
  return 'R,' .. left .. ',' .. note
end

local function try(lock, companion, owner, ttl, n, meta, waits)
  local first
  first, n = reserve(n)
  local value = owner .. ':' .. string.format('%.0f', first) .. ':' .. clock[1] .. '.' .. clock[2] .. ':' .. meta
  if not call('SET', lock, value, 'NX', 'PX', ttl) then
    return refuse(lock, companion, owner, waits)
  end
  counter, spent = first + n - 1, true
  local outside = 0
  if waits then
    call('ZREM', companion, engine)
    outside = others(companion)
  end
  return granted(first, n, outside)
end

local function release(lock, companion, keep, meta)
  if keep then
    call('SET', lock, 'completed:' .. clock[1] .. '.' .. clock[2] .. ':' .. meta, 'PX', keep)
  else
    call('DEL', lock)
  end
  local outside = others(companion)
  if outside > 0 then
    call(publish, companion, engine)
  end
  return 'O,0,0,' .. outside
end

local replies = {}
local i = 1
for k = 2, #KEYS, 2 do
  local lock, companion = KEYS[k], KEYS[k + 1]
  local a = i * 5 - 1
  local action, owner, ms, meta = ARGV[a], ARGV[a + 1], ARGV[a + 2], ARGV[a + 4]
  local reply
  if action == 't' or action == 'w' then
    reply = try(lock, companion, owner, ms, tonumber(ARGV[a + 3]), meta, action == 'w')
  elseif action == 'l' then
    call('ZREM', companion, engine)
    reply = 'O,0,0,0'
  else
    local value = read(lock)
    if value == false then
      reply = 'A'
    elseif value == nil or string.sub(value, 1, 33) ~= owner .. ':' then
      reply = 'F'
    elseif action == 'e' then
      if call('PTTL', lock) < tonumber(ms) then
        call('PEXPIRE', lock, ms)
      end
      reply = 'O,0,0,0'
    elseif action == 'f' then
      local first, n = reserve(tonumber(ARGV[a + 3]))
      counter, spent = first + n - 1, true
      reply = 'O,' .. string.format('%.0f', first) .. ',' .. n .. ',' .. others(companion)
    else
      reply = release(lock, companion, action == 'k' and ms, meta)
    end
  end
  replies[i] = reply
  i = i + 1
end
if spent then
  call('SET', KEYS[1], string.format('%.0f', counter))
end
return replies
