-- Exclusive holds: a batch of operations, carried out in order.
--
-- KEYS  1          the fence counter that all locks of this batch share
--       2 ..       for each operation the lock, and for those of W below its companion: the set of engines that wait for
--                  it, whose name is also the channel on which a release is told
-- ARGV  1          the actions, one letter each; a capital brings its own ms, n and meta
--       2, 3       ms and meta of the operations that bring none of their own
--       4 ..       for each operation: owner [, ms, n, meta]
--       the last three, where there are companions: the engine that asks; PUBLISH or SPUBLISH (who may not use it does
--                  without, for waiters poll as well); for how long a waiter counts, in ms
-- Actions: t try; e extend; and with a companion (W): w try and wait, v the same for an engine that may be among the
--       waiters already, r release, k release but keep others out, f refill, l leave.
-- Reply one string, the operations' answers one after the other, each ended by ";":
--       G,fence,n,outside   granted, with the fences fence .. fence+n-1; outside is 1 where other engines wait, else 0
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
--
-- Most calls are a plain grant or a release, and what they do not need they do not pay for: the clock and the counter are
-- read, and the functions for all the rest are made, when they are first needed.
local call, pcall = redis.call, redis.pcall
local sub, byte, type, format = string.sub, string.byte, type, string.format
local KEYS, ARGV = KEYS, ARGV
local actions = ARGV[1]
local engine, publish, patience = ARGV[#ARGV - 2], ARGV[#ARGV - 1], ARGV[#ARGV]
if publish == 'SPUBLISH' and not redis.REDIS_VERSION_NUM then
  publish = 'PUBLISH' -- a server older than 7
end
local seconds, micros, nowms -- the clock
local counter, spent -- the greatest fence so far, as text, and whether it has to be saved
local shared, fence, granted -- what stands in a lock between its owner and its meta after a plain grant; the answer to it
local rest -- what carries out all other operations
local replies = {}
local k, a = 2, 4
for i = 1, #actions do
  local action, lock, owner = byte(actions, i), KEYS[k], ARGV[a]
  local ms, n, meta = ARGV[2], 1, ARGV[3]
  k, a = k + 1, a + 1
  if action < 97 then
    ms, n, meta = ARGV[a], tonumber(ARGV[a + 1]), ARGV[a + 2]
    action, a = action + 32, a + 3
  end
  local companion
  if action ~= 116 and action ~= 101 then
    companion = KEYS[k]
    k = k + 1
  end
  local trying = action == 116 or action == 119 or action == 118 -- t, w, v

  local reply, value, mark
  if action == 114 or action == 107 then -- r, k
    value = pcall('GET', lock)
    mark = value and type(value) == 'string' and sub(value, 1, 32) == owner and (byte(value, 33) or 0)
    if mark == 58 and action == 114 then
      call('DEL', lock)
      reply, shared = 'O,0,0,0;', nil
    end
  end
  if not reply and not seconds then
    local clock = call('TIME')
    seconds, micros = clock[1], sub('00000' .. clock[2], -6)
  end

  if trying and n == 1 then
    local condition = 'NX'
    repeat
      if not shared then
        -- A fence above all before: the clock, as a rule. Fences grow by key, so different keys of a batch may share one;
        -- there is another after a release, for the key might be the same.
        fence = seconds .. micros
        if counter and counter - fence >= 0 then
          fence = format('%.0f', counter + 1)
        end
        shared, granted = ':' .. fence .. ':' .. seconds .. '.' .. micros .. ':', 'G,' .. fence .. ',1,0;'
      end
      if not call('SET', lock, owner .. shared .. meta, condition, 'PX', ms) then
        break
      end
      -- The first grant saves its fence and learns of those before it in one command. The clock is above them unless it was
      -- set back, or many were reserved just now: then the lock is written once more.
      local last = not counter and call('GETSET', KEYS[1], fence)
      if last and (#last > #fence or #last == #fence and last >= fence) then -- what is no number is below
        call('SET', KEYS[1], last) -- as it was, before anything can break off
        counter, shared, condition = last, nil, 'XX'
      else
        spent = spent or counter and counter ~= fence
        counter, reply = fence, granted
      end
    until reply
  elseif mark and not reply then
    if action == 107 then
      call('SET', lock, 'completed:' .. seconds .. '.' .. micros .. ':' .. meta, 'PX', ms)
    else
      call('DEL', lock)
    end
    reply, shared = 'O,0,0,0;', nil
    if mark == 42 then
      -- Told is whose turn it is: the engine's that has waited longest for an exclusive hold. It has a moment to come, and
      -- does not count any more then: it may be dead.
      nowms = nowms or math.floor((seconds .. micros) / 1000)
      local some = call('ZRANGEBYSCORE', companion, nowms, '+inf', 'WITHSCORES', 'LIMIT', 0, 2)
      local at = some[1] == engine and 3 or 1
      local turn, ends = some[at], tonumber(some[at + 1])
      if turn then
        reply = 'O,0,0,1;'
        if ends < 1e15 and ends > nowms + 50 then
          call('ZADD', companion, nowms + 50, turn)
        end
        pcall(publish, companion, ends < 1e15 and engine .. '>' .. turn or engine)
      end
    end
  end

  if not reply then
    if not rest then
      local match = string.match
      local now = tonumber(seconds .. micros)
      nowms = math.floor(now / 1000)

      -- The fences first .. first+n-1: above all before, and not ahead of the clock unless the counter is, so that a
      -- server that has lost its memory, and starts at its clock, is above all that it has given.
      local function reserve(n)
        local last = tonumber(counter or call('GET', KEYS[1]) or '0')
        local room = now - last
        if n > room then
          n = room < 1 and 1 or room
        end
        local first = now - n + 1
        if first <= last then
          first = last + 1
        end
        return first, n
      end

      local function spend(last)
        counter, spent, shared = format('%.0f', last), true, nil
      end

      -- What stands at the lock: its string, false when there is none, nil when it is no string.
      local function read(lock, value)
        if value == nil then
          value = pcall('GET', lock)
        end
        if type(value) == 'table' then
          if not string.find(value.err, 'WRONGTYPE', 1, true) then
            call('GET', lock) -- for its error: it was denied
          end
          return nil
        end
        return value
      end

      -- Whether nothing lives in a set but the completed mark that a holder has left.
      local function completed(lock)
        local mark = tonumber(call('ZSCORE', lock, 'c'))
        return mark and mark > nowms and call('ZCOUNT', lock, '(' .. nowms, '+inf') == 1
      end

      local function refuse(lock, companion, owner)
        local value = read(lock)
        if value and sub(value, 1, 32) == owner then
          -- A replay finds itself. The script that granted may have broken off before it could save the counter.
          local given = tonumber(match(value, '^%x+[:*](%d+):'))
          if given > tonumber(counter or call('GET', KEYS[1]) or '0') then
            spend(given)
          end
          return 'G,' .. format('%.0f', given) .. ',1,0;'
        end
        local left = call('PTTL', lock)
        if left == -1 or (value == nil and call('TYPE', lock).ok ~= 'zset') then
          return 'X;'
        end
        left = left < 1 and 1 or left -- 0 in its last millisecond, which would mean that it is not known
        if value and sub(value, 1, 10) == 'completed:' or value == nil and completed(lock) then
          return 'C,' .. left .. ';'
        end
        local _, mark = string.find(value or '', '^%x+[:*]%d+:')
        local ours = mark and string.find(value, '[:*]') == 33
        if companion then
          if ours and byte(value, 33) ~= 42 then
            call('SETRANGE', lock, 32, '*')
          end
          -- The order of the scores is whose turn it is. One that comes again keeps its own till it runs short, and then gets
          -- the least that will do: so it stays before all who came later, or it would never be the first where many wait. Among
          -- those who have waited for as long as that it is chance.
          local own = tonumber(call('ZSCORE', companion, engine) or '0')
          local least = nowms + math.floor(patience * 2 / 3)
          if own < least or own >= 1e15 then
            call('ZREMRANGEBYSCORE', companion, '-inf', nowms - 1)
            call('ZREMRANGEBYSCORE', companion, '1e15', '(' .. format('%.0f', 1e15 + nowms))
            call('ZREMRANGEBYSCORE', companion, '2e15', '(' .. format('%.0f', 2e15 + nowms))
            local waits = own >= nowms and own < 1e15
            call('ZADD', companion, waits and least or nowms + patience, engine)
            call('PEXPIRE', companion, patience * 2)
          end
        end
        if value and not ours then
          return 'S,' .. left .. ';'
        end
        local note = ours and match(value, '%z(.*)$') or ''
        return 'R,' .. left .. ',' .. #note .. ',' .. note .. ';'
      end

      local function try(lock, companion, owner, ms, n, meta)
        local first, n = reserve(n)
        local fence = format('%.0f', first)
        if not call('SET', lock, owner .. ':' .. fence .. ':' .. seconds .. '.' .. micros .. ':' .. meta, 'NX', 'PX', ms) then
          return refuse(lock, companion, owner)
        end
        spend(first + n - 1)
        return 'G,' .. fence .. ',' .. n .. ',0;'
      end

      local function refill(companion, value, n)
        local first, n = reserve(n)
        spend(first + n - 1)
        local outside = 0
        if byte(value, 33) == 42 then
          local some = call('ZRANGEBYSCORE', companion, nowms, '+inf', 'LIMIT', 0, 2)
          outside = (some[2] or some[1] and some[1] ~= engine) and 1 or 0
        end
        return 'O,' .. format('%.0f', first) .. ',' .. n .. ',' .. outside .. ';'
      end

      rest = function(action, lock, companion, owner, ms, n, meta, value)
        if action == 116 or action == 119 or action == 118 then -- t, w, v
          if n == 1 then
            return refuse(lock, companion, owner) -- it has been tried
          end
          return try(lock, companion, owner, ms, n, meta)
        elseif action == 108 then -- l
          -- Readers were kept out by it.
          if call('ZREM', companion, engine) == 1 and call('ZCOUNT', companion, '2e15', '+inf') > 0 then
            pcall(publish, companion, engine)
          end
          return 'O,0,0,0;'
        end
        value = read(lock, value)
        if value == false then
          return 'A;'
        elseif value == nil or sub(value, 1, 32) ~= owner then
          return 'F;'
        elseif action == 101 then -- e
          if call('PTTL', lock) < tonumber(ms) then
            call('PEXPIRE', lock, ms)
          end
          return 'O,0,0,0;'
        end
        return refill(companion, value, n) -- f
      end
    end
    reply = rest(action, lock, companion, owner, ms, n, meta, value)
  end
  if action == 118 and sub(reply, 1, 1) == 'G' then
    call('ZREM', companion, engine)
    if call('EXISTS', companion) == 1 then
      -- Some were refused while it was free, since they must not pass this engine.
      call('SETRANGE', lock, 32, '*')
    end
  end
  replies[i] = reply
end
if spent then
  call('SET', KEYS[1], counter)
end
return #actions == 1 and replies[1] or table.concat(replies)
