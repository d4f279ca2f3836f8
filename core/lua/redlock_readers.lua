-- Readers on one node of a RedLock: the part of lua/redlock.lua that carries out shared holds.
--
-- As in lua/kinds.lua the lock of readers is a sorted set with a member "s" owner for each, whose score is its deadline in
-- ms by this node's clock; so SET NX is kept out while one lives. A member "c" is a completed mark beside readers that
-- are still there. The set's TTL ends with the greatest score, and so does that of the companion hold, a hash: owner →
-- ":" fence ":" seconds "." microseconds ":" meta, which with the owner before it is what the lock of an exclusive hold
-- says; and "" → what the mark says.
--
-- A reader lives to the end of the millisecond of its score, as a key does to the end of that of its TTL.
local function readers(nowms, stamp)
  local call, format = redis.call, string.format
  local set = {}

  -- Has the lock end with the last who is left; a mark that is left alone becomes the string of every completed lock.
  local function settle(lock, hold)
    local last = call('ZREVRANGE', lock, 0, 0, 'WITHSCORES')
    if last[1] == 'c' and call('ZCARD', lock) == 1 then
      local ms = math.max(1, tonumber(last[2]) - nowms)
      call('SET', lock, 'completed' .. (call('HGET', hold, '') or stamp), 'PX', format('%.0f', ms))
      call('DEL', hold)
    elseif last[1] then
      call('PEXPIREAT', lock, last[2])
      call('PEXPIREAT', hold, last[2])
    end
  end

  -- Drops the dead. Returns whether what stands at the lock, which is no string, was a set of ours.
  function set.tidy(lock, hold)
    local first = redis.pcall('ZRANGE', lock, 0, 0, 'WITHSCORES')
    if first.err and not string.find(first.err, 'WRONGTYPE', 1, true) then
      call('ZRANGE', lock, 0, 0) -- for its error: it was denied
    end
    if not first[1] or not (first[1] == 'c' or string.find(first[1], '^s%x+$')) or call('PTTL', lock) == -1 then
      return false
    end
    if tonumber(first[2]) < nowms then
      local dead = call('ZRANGEBYSCORE', lock, '-inf', '(' .. format('%.0f', nowms))
      for i = 1, #dead do
        call('ZREM', lock, dead[i])
        call('HDEL', hold, string.sub(dead[i], 2))
      end
      settle(lock, hold)
    end
    return true
  end

  function set.has(lock, owner)
    return call('ZSCORE', lock, 's' .. owner)
  end

  function set.marked(lock)
    return call('ZSCORE', lock, 'c')
  end

  -- What is said of a reader: of the first that will end, unless it is named.
  function set.text(lock, hold, owner)
    return call('HGET', hold, owner or string.sub(call('ZRANGE', lock, 0, 0)[1], 2)) or ''
  end

  -- Says something else of a reader of whom anything is said: without a reader the companion would have no TTL.
  function set.say(hold, owner, text)
    if call('HEXISTS', hold, owner) == 1 then
      call('HSET', hold, owner, text)
    end
  end

  -- Adds a reader, where nothing stands but other readers and a completed mark.
  function set.add(lock, hold, owner, text, ms)
    local mark = redis.pcall('GET', lock)
    if not mark then
      call('DEL', hold) -- of readers that have expired
    elseif type(mark) == 'string' then
      local ends = nowms + call('PTTL', lock)
      call('DEL', lock, hold)
      call('ZADD', lock, format('%.0f', ends), 'c')
      call('HSET', hold, '', string.sub(mark, 10))
    end
    call('HSET', hold, owner, text)
    call('ZADD', lock, format('%.0f', nowms + ms), 's' .. owner)
    settle(lock, hold)
  end

  function set.extend(lock, hold, owner, ms)
    if tonumber(set.has(lock, owner)) < nowms + ms then
      call('ZADD', lock, format('%.0f', nowms + ms), 's' .. owner)
      settle(lock, hold)
    end
  end

  function set.drop(lock, hold, owner)
    call('ZREM', lock, 's' .. owner)
    call('HDEL', hold, owner)
    settle(lock, hold)
  end

  -- Ends a reader's hold, if it is there, and keeps new ones out for ms.
  function set.complete(lock, hold, owner, text, ms)
    call('ZADD', lock, format('%.0f', nowms + ms), 'c')
    call('HSET', hold, '', text)
    set.drop(lock, hold, owner)
  end

  -- All of them, "owner text" each, with the ms that are left.
  function set.all(lock, hold, most)
    local members = call('ZRANGE', lock, 0, most - 1, 'WITHSCORES')
    local all = {}
    for i = 1, #members, 2 do
      local owner = string.sub(members[i], 2)
      local text = (owner == '' and 'completed' or owner) .. (call('HGET', hold, owner) or '')
      all[#all + 1] = format('%.0f', tonumber(members[i + 1]) - nowms) .. ',' .. #text .. ',' .. text
    end
    return all
  end

  return set
end

