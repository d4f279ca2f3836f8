-- The older protocol of SETNX and GETSET, made atomic on our side: a batch of operations, carried out in order.
--
-- KEYS  1            the fence counter that all locks of this batch share
--       3i-1 ..      for operation i the lock, our record of it, and the set of engines that wait for it, whose name is
--                    also the channel on which a release is told
-- ARGV  1            the engine that asks
--       2            PUBLISH or SPUBLISH; who may not use it does without, for waiters poll as well
--       3            for how long a waiter counts, in ms
--       4            for how long a lock stays after its end, in ms
--       5i ..        for operation i: action, owner, ms, n, meta
-- Actions: t try, w try and wait, e extend, r release, k release but keep others out, f refill, l leave; and for an
--       operator i inspect, d delete whosever it is.
-- Reply one string, the operations' answers one after the other, each ended by ";":
--       G,fence,n,outside   granted, with the fences fence .. fence+n-1
--       R,ms,length,note    refused by a holder of ours: what is left
--       S,ms                refused by one that tells nobody of its release
--       C,ms                refused: completed
--       O,fence,n,outside   done
--       A absent, F held by another, X not a lock
--       i answers R,ms,waiters,fence,since,meta or C the same, or S,ms,waiters, or A,0,waiters
--
-- A lock is its end by this server's clock, in ms, as decimal digits: it is held until that has passed. An end that has
-- passed is overwritten and never deleted, as others may be about to compare it. Our record says whose the lock is, and
-- holds for as long as the lock is the end that it tells of: owner ":" end ":" fence ":" seconds "." microseconds ":"
-- meta; the owner is "completed" when the key is only kept.
local call, pcall = redis.call, redis.pcall
local format, match = string.format, string.match
local engine, grace = ARGV[1], tonumber(ARGV[4])
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local nowms = math.floor(now / 1000)
local stamp = ':' .. clock[1] .. '.' .. clock[2] .. ':'
local publish = ARGV[2]
if publish == 'SPUBLISH' and not redis.REDIS_VERSION_NUM then
  publish = 'PUBLISH' -- a server older than 7
end
local counter, spent

-- As in lock.lua: above all before, and not ahead of the clock unless the counter is.
local function reserve(n)
  counter = counter or tonumber(call('GET', KEYS[1]) or '0')
  local room = now - counter
  if n > room then
    n = room < 1 and 1 or room
  end
  local first = now - n + 1
  if first <= counter then
    first = counter + 1
  end
  counter, spent = first + n - 1, true
  return first, n
end

local function others(waiters)
  local count = call('ZCOUNT', waiters, nowms, '+inf')
  if count > 0 then
    local own = call('ZSCORE', waiters, engine)
    if own and tonumber(own) >= nowms then
      count = count - 1
    end
  end
  return count
end

-- The end that stands at the lock, as text and as a number. False: nothing. Nil: something else, with its TTL.
-- An end before 2001 is one in seconds, and one in ten years is one in microseconds: neither is ours to judge.
local function read(lock)
  local text = pcall('GET', lock)
  if text == false then
    return false
  end
  if type(text) == 'table' then
    if not string.find(text.err, 'WRONGTYPE', 1, true) then
      call('GET', lock) -- for its error: it was denied
    end
    return nil, -1
  end
  local ends = match(text, '^%d+$') and tonumber(text)
  if not ends then
    return nil, call('PTTL', lock)
  end
  if ends < 1e12 or ends > nowms + 315576000000 then
    return nil, -1
  end
  return text, ends
end

local function write(lock, record, owner, ends, fence, since, meta)
  local text, stays = format('%.0f', ends), format('%.0f', ends - nowms + grace)
  call('SET', lock, text, 'PX', stays)
  call('SET', record, owner .. ':' .. text .. ':' .. fence .. since .. meta, 'PX', stays)
end

-- What our record tells of a lock: its owner, fence, since and meta; nil when the lock is another's.
local function recorded(record, text)
  local value = call('GET', record)
  if not value then
    return nil
  end
  local owner, ends, fence, since, meta = match(value, '^(%w+):(%d+):(%d+)(:%d+%.%d+:)(.*)$')
  if ends ~= text then
    return nil
  end
  return owner, fence, since, meta
end

local function refuse(owner, record, waiters, text, ends, waits)
  local holder, fence, _, meta = recorded(record, text)
  if holder == owner then
    -- A replay finds itself. The script that granted may have broken off before it could save the counter.
    counter = counter or tonumber(call('GET', KEYS[1]) or '0')
    if tonumber(fence) > counter then
      counter, spent = tonumber(fence), true
    end
    return 'G,' .. fence .. ',1,0'
  end
  local left = format('%.0f', math.max(ends - nowms, 1))
  if holder == 'completed' then
    return 'C,' .. left
  end
  if waits then
    call('ZREMRANGEBYSCORE', waiters, '-inf', nowms - 1)
    call('ZADD', waiters, nowms + ARGV[3], engine)
    call('PEXPIRE', waiters, ARGV[3] * 2)
  end
  if not holder then
    return 'S,' .. left
  end
  local note = match(meta, '%z(.*)$') or ''
  return 'R,' .. left .. ',' .. #note .. ',' .. note
end

local function try(lock, record, waiters, owner, ms, n, meta, waits)
  local text, ends = read(lock)
  if text == nil then
    return ends < 0 and 'X' or 'S,' .. ends
  end
  if text and ends >= nowms then
    return refuse(owner, record, waiters, text, ends, waits)
  end
  local first
  first, n = reserve(n)
  local fence = format('%.0f', first)
  write(lock, record, owner, nowms + ms, fence, stamp, meta)
  local outside = 0
  if waits then
    call('ZREM', waiters, engine)
    outside = others(waiters)
  end
  return 'G,' .. fence .. ',' .. n .. ',' .. outside
end

local function release(lock, record, waiters, fence, keep, meta)
  if keep then
    write(lock, record, 'completed', nowms + keep, fence, stamp, meta)
  else
    call('DEL', lock, record)
  end
  local outside = others(waiters)
  if outside > 0 then
    pcall(publish, waiters, engine)
  end
  return 'O,0,0,' .. outside
end

local function onHeld(action, lock, record, waiters, owner, ms, n, meta)
  local text, ends = read(lock)
  if text == false or text and ends < nowms then
    return 'A'
  end
  local holder, fence, since, told
  if text then
    holder, fence, since, told = recorded(record, text)
  end
  if holder ~= owner then
    return 'F'
  end
  if action == 'e' then
    if nowms + ms > ends then
      write(lock, record, owner, nowms + ms, fence, since, told)
    end
    return 'O,0,0,0'
  end
  if action == 'f' then
    local first
    first, n = reserve(n)
    return 'O,' .. format('%.0f', first) .. ',' .. n .. ',' .. others(waiters)
  end
  return release(lock, record, waiters, fence, action == 'k' and ms, meta)
end

local function inspect(lock, record, waiters)
  local text, ends = read(lock)
  local waiting = call('ZCOUNT', waiters, nowms, '+inf')
  if text == nil then
    return ends < 0 and 'X' or 'S,' .. ends .. ',' .. waiting
  end
  if not text or ends < nowms then
    return 'A,0,' .. waiting
  end
  local head = ',' .. format('%.0f', math.max(ends - nowms, 1)) .. ',' .. waiting
  local holder, fence, since, meta = recorded(record, text)
  if not holder then
    return 'S' .. head
  end
  return (holder == 'completed' and 'C' or 'R') .. head .. ',' .. fence .. ',' .. string.sub(since, 2, -2) .. ',' .. meta
end

-- Whatever holds the lock, also another's string with a TTL; what is no lock stays.
local function delete(lock, record, waiters)
  local text, ends = read(lock)
  if text == nil and ends < 0 then
    return 'X'
  end
  if text ~= false and (text == nil or ends >= nowms) then
    call('DEL', lock, record)
  end
  pcall(publish, waiters, '')
  return 'O,0,0,0'
end

local replies = {}
for i = 1, (#KEYS - 1) / 3 do
  local lock, record, waiters = KEYS[3 * i - 1], KEYS[3 * i], KEYS[3 * i + 1]
  local a = 5 * i
  local action, owner, ms, n, meta = ARGV[a], ARGV[a + 1], tonumber(ARGV[a + 2]), tonumber(ARGV[a + 3]), ARGV[a + 4]
  if action == 't' or action == 'w' then
    replies[i] = try(lock, record, waiters, owner, ms, n, meta, action == 'w')
  elseif action == 'i' then
    replies[i] = inspect(lock, record, waiters)
  elseif action == 'd' then
    replies[i] = delete(lock, record, waiters)
  elseif action == 'l' then
    call('ZREM', waiters, engine)
    replies[i] = 'O,0,0,0'
  else
    replies[i] = onHeld(action, lock, record, waiters, owner, ms, n, meta)
  end
end
if spent then
  call('SET', KEYS[1], format('%.0f', counter))
end
replies[#replies + 1] = ''
return table.concat(replies, ';')
