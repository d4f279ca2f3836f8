-- Exclusive holds: a batch of operations, carried out in order.
--
-- KEYS  1          the fence counter that all locks of this batch share
--       2 ..       for each operation the lock, and for those of W below its companion: the set of engines that wait for
--                  it, whose name is also the channel on which a release is told
-- ARGV  1          the engine that asks
--       2          PUBLISH or SPUBLISH; who may not use it does without, for waiters poll as well
--       3          for how long a waiter counts, in ms
--       4, 5       ms and meta of the operations that bring none of their own
--       6          the actions, one letter each; a capital brings its own ms, n and meta
--       7 ..       for each operation: owner [, ms, n, meta]
-- Actions: t try; e extend; and with a companion (W): w try and wait, v the same for an engine that may be among the
--       waiters already, r release, k release but keep others out, f refill, l leave.
-- Reply one string, the operations' answers one after the other, each ended by ";":
--       G,fence,n,outside   granted, with the fences fence .. fence+n-1
--       R,ms,length,note    refused: the holder's TTL
--       S,ms                refused: the TTL of another library's string, whose release is told to nobody
--       C,ms                refused: completed
--       O,fence,n,outside   done
--       A absent, F held by another, X not a lock
--
-- A lock is a string with a TTL: owner mark fence ":" seconds "." microseconds ":" meta. The owner is 32 hexadecimal
-- digits; the mark is ":", or "*" once somebody waits for this holder, so that a release looks for waiters only then.
-- A holder of another kind is a member of a sorted set with a TTL: see lua/kinds.lua, also for the scores of waiters.
-- Fences are formatted, for Lua turns large numbers into 1.7e+15.
local call, pcall = redis.call, redis.pcall
local sub, byte, format, find, match = string.sub, string.byte, string.format, string.find, string.match
local engine = ARGV[1]
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local nowms = math.floor(now / 1000)
local stamp = ':' .. clock[1] .. '.' .. clock[2] .. ':'
local counter, spent
local publish = ARGV[2]
if publish == 'SPUBLISH' and not redis.REDIS_VERSION_NUM then
  publish = 'PUBLISH' -- a server older than 7
end

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

-- Fences grow by key, so different keys of a batch may share one: it is reserved and formatted once, and anew after a
-- release, for the key might be the same.
local shared, fence, granted
local function share()
  shared = reserve(1)
  fence = format('%.0f', shared)
  granted = 'G,' .. fence .. ',1,0'
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

-- Whether nothing lives in a set but the completed mark that a holder has left.
local function completed(lock)
  local mark = tonumber(call('ZSCORE', lock, 'c'))
  return mark and mark > nowms and call('ZCOUNT', lock, '(' .. nowms, '+inf') == 1
end

local function refuse(lock, companion, owner, waits)
  local value = read(lock)
  if value and sub(value, 1, 32) == owner then
    -- A replay finds itself. The script that granted may have broken off before it could save the counter.
    local given = match(value, '^%x+[:*](%d+):')
    if tonumber(given) > counter then
      counter, spent, shared = tonumber(given), true, nil
    end
    return 'G,' .. given .. ',1,0'
  end
  local left = call('PTTL', lock)
  if left == -1 or (value == nil and call('TYPE', lock).ok ~= 'zset') then
    return 'X'
  end
  if value and sub(value, 1, 10) == 'completed:' or value == nil and completed(lock) then
    return 'C,' .. left
  end
  local _, mark = find(value or '', '^%x+[:*]%d+:')
  local ours = mark and find(value, '[:*]') == 33
  if waits then
    if ours and byte(value, 33) ~= 42 then
      call('SETRANGE', lock, 32, '*')
    end
    call('ZREMRANGEBYSCORE', companion, '-inf', nowms - 1)
    call('ZREMRANGEBYSCORE', companion, '1e15', '(' .. format('%.0f', 1e15 + nowms))
    call('ZREMRANGEBYSCORE', companion, '2e15', '(' .. format('%.0f', 2e15 + nowms))
    call('ZADD', companion, nowms + ARGV[3], engine)
    call('PEXPIRE', companion, ARGV[3] * 2)
  end
  if value and not ours then
    return 'S,' .. left
  end
  local note = ours and match(value, '%z(.*)$') or ''
  return 'R,' .. left .. ',' .. #note .. ',' .. note
end

local function try(lock, companion, owner, ms, n, meta, waits, registered)
  local first, text, reply
  if n == 1 then
    if not shared then
      share()
    end
    first, text, reply = shared, fence, granted
  else
    first, n = reserve(n)
    text = format('%.0f', first)
    reply = 'G,' .. text .. ',' .. n .. ',0'
  end
  if not call('SET', lock, owner .. ':' .. text .. stamp .. meta, 'NX', 'PX', ms) then
    return refuse(lock, companion, owner, waits)
  end
  local last = first + n - 1
  if last > counter then
    counter = last
  end
  spent = true
  if n > 1 then
    shared = nil
  end
  if registered then
    call('ZREM', companion, engine)
    if call('EXISTS', companion) == 1 then
      call('SETRANGE', lock, 32, '*') -- some were refused while it was free, since they must not pass this engine
    end
  end
  return reply
end

local function release(lock, companion, value, keep, meta)
  if keep then
    call('SET', lock, 'completed' .. stamp .. meta, 'PX', keep)
  else
    call('DEL', lock)
  end
  shared = nil
  local outside = 0
  if byte(value, 33) == 42 then
    outside = others(companion)
    if outside > 0 then
      pcall(publish, companion, engine)
    end
  end
  return 'O,0,0,' .. outside
end

local function refill(companion, value, n)
  local first
  first, n = reserve(n)
  counter, spent, shared = first + n - 1, true, nil
  local outside = byte(value, 33) == 42 and others(companion) or 0
  return 'O,' .. format('%.0f', first) .. ',' .. n .. ',' .. outside
end

local replies = {}
local actions = ARGV[6]
local k, a = 2, 7
for i = 1, #actions do
  local action = byte(actions, i)
  local lock, owner, companion = KEYS[k], ARGV[a], nil
  local ms, n, meta = ARGV[4], 1, ARGV[5]
  k, a = k + 1, a + 1
  if action < 97 then
    ms, n, meta = ARGV[a], tonumber(ARGV[a + 1]), ARGV[a + 2]
    action, a = action + 32, a + 3
  end
  if action ~= 116 and action ~= 101 then
    companion = KEYS[k]
    k = k + 1
  end
  if action == 116 then -- t
    replies[i] = try(lock, nil, owner, ms, n, meta)
  elseif action == 119 or action == 118 then -- w, v
    replies[i] = try(lock, companion, owner, ms, n, meta, true, action == 118)
  elseif action == 108 then -- l
    -- Readers were kept out by it.
    if call('ZREM', companion, engine) == 1 and call('ZCOUNT', companion, '2e15', '+inf') > 0 then
      pcall(publish, companion, engine)
    end
    replies[i] = 'O,0,0,0'
  else
    local value = read(lock)
    if value == false then
      replies[i] = 'A'
    elseif value == nil or sub(value, 1, 32) ~= owner then
      replies[i] = 'F'
    elseif action == 114 then -- r
      replies[i] = release(lock, companion, value)
    elseif action == 101 then -- e
      if call('PTTL', lock) < tonumber(ms) then
        call('PEXPIRE', lock, ms)
      end
      replies[i] = 'O,0,0,0'
    elseif action == 102 then -- f
      replies[i] = refill(companion, value, n)
    else -- k
      replies[i] = release(lock, companion, value, ms, meta)
    end
  end
end
if spent then
  call('SET', KEYS[1], format('%.0f', counter))
end
replies[#replies + 1] = ''
return table.concat(replies, ';')
