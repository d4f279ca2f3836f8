-- One node of a RedLock: a batch of operations, carried out in order. What it does with readers is in
-- lua/redlock_readers.lua, which is put where that name stands below.
--
-- KEYS  1            the fence counter of the node
--       2            the node's marker: what it knows of its own memory; lua/redlock_mark.lua writes it
--       2i+1, 2i+2   the lock of operation i, and its companion, as in lua/lock.lua
-- ARGV  1            the engine that asks
--       2            for how long a waiter counts, in ms
--       3            the greatest TTL of the client's locks, in ms
--       4 .. 7       the marker as the caller knows it, and of it: the life, the run id as INFO says it, the end of
--                    quarantine. So it need not be taken apart here when it is still the same
--       8 ..         the operations, each with as many fields as it needs: action, owner, and then the following; a capital
--                    does the same for a shared hold
--       t, w         ms, n, meta, not after, proposal   try (and wait): take the lock, reserve n fences; of a shared hold
--                    they begin at a multiple of n
--       r                                               release
--       e            ms, meta, not after, life, until, fence   extend; fill in where the node never had the lock, has
--                    lost it with its memory, or let it expire
--       k            ms, meta, not after, life, until   release but keep others out; fill in as e does
--       f            n, proposal                        reserve n more fences
--       b            fence, counter                     write back: raise the counter, and say the fence in the lock
--       x            ms, not after                      take away by force; leave a trace for ms, see below
--       l, i, p      nothing                            leave the waiters, inspect, probe: can this be written to
-- Times are the node's own, in µs. "life" is the life of the node's memory in which the caller held the lock here, "-"
-- when it did not; "until" is when the lock expires here as far as the caller knows.
-- Reply one string: an answer of the node, and one for each operation; fields by ",", answers ended by ";":
--       life,now,ms,marker  the life of the node's memory, "-" when it has none or nobody has judged it yet, "?" when
--                           no operation needed to know; ms of quarantine left; the marker if it is another than the
--                           caller knows
--       G,counter,outside   granted: the last of the n fences
--       R,ms,tag,len,note   refused: the holder's TTL, a name for the holder that is no secret, and its note; readers have
--                           one name for all. An exclusive hold that is waited for refuses them like a holder
--       C,ms                refused: completed
--       Q,ms                refused: no holder, but the node may have forgotten one
--       U                   refused: the node must be judged first
--       T                   refused: too late
--       O,counter,outside   done
--       N                   filled in
--       A                   nobody holds it, and the node would remember: deleted
--       M                   nobody holds it, and it was not filled in
--       F                   held by another
--       X                   not a lock
--       I,waiters,kind,n,   and n times ms,len,value: what stands there, x one holder or s readers
--
-- The companion is a sorted set of the engines that wait: until when each counts, in ms, plus MILD when it waits for a
-- shared hold.
--
-- A restart is seen by the run id, in every call that takes, extends or misses a lock: a marker that a snapshot brought
-- back names another process. To ask once for each connection would not do, for the pool is shared with the
-- application, whose own commands may have opened the connection after the restart. INFO knows it, and costs more than
-- all the rest; so there is a variant of this script for each process, which needs no INFO: see redlock_process.go. Who
-- finds its own lock and lets go of it need not know: what the node has forgotten besides is nothing to it.
--
-- Most calls are a plain grant or a plain release, and what they do not need they do not pay for: the memory is looked
-- at, and the functions for all the rest are made, when they are first needed.
local process = '' -- "run_id:" and the id of the only process that knows this variant; none knows it before Redis 7
local call, pcall = redis.call, redis.pcall
local sub, format = string.sub, string.format
local KEYS, ARGV = KEYS, ARGV
local clock = call('TIME')
local seconds, micros = clock[1], sub('00000' .. clock[2], -6)
local now, stamp = tonumber(seconds .. micros), ':' .. seconds .. '.' .. micros .. ':'
local life, remembers, left, news = '?', false, 0, '' -- of the node's memory
local looked
local counter, spent -- the greatest fence so far, and whether it has to be saved
local rest, outside -- what others returns

-- Sees what the node remembers, and reads its counter on the way.
local function look()
  looked, life = true, ARGV[5]
  local run, quarantine, saved = ARGV[6], ARGV[7], call('MGET', KEYS[2], KEYS[1])
  local mark = saved[1]
  counter = counter or tonumber(saved[2] or '0')
  remembers = mark == ARGV[4]
  if not remembers and mark then
    local state, index, most
    state, life, run, most, quarantine, index = string.match(mark, '^(%a):(%w+):(%w+):(%d+):(%d+):(%d+)$')
    if state == 'r' then
      remembers, run = true, 'run_id:' .. run
      if tonumber(most) < tonumber(ARGV[3]) then
        -- Before any lock with such a TTL is taken here.
        mark = table.concat({state, life, sub(run, 8), ARGV[3], quarantine, index}, ':')
        call('SET', KEYS[2], mark)
      end
      news = mark
    end
  end
  local same = run == process and redis.REDIS_VERSION_NUM
  if not remembers or not (same or string.find(call('INFO', 'server'), run, 1, true)) then
    remembers, life, news = false, '-', ''
  elseif quarantine ~= '0' then
    left = math.max(0, math.ceil((tonumber(quarantine) - now) / 1000))
  end
end

-- The last of n fences that nobody has: above all before, at the clock, and where the proposal says if that is not far
-- ahead of the clock, so that all nodes agree.
local function reserve(n, proposal)
  return math.max(counter + n, now + n - 1, math.min(proposal, now + 100000))
end

-- Makes what carries out the operations that are no plain grant or release, and what counts those who wait.
local function others()
  local nowms = math.floor(now / 1000)
  local MILD = 2e15
  local set -- what readers returned
  -- lua/redlock_readers.lua

  local function waiting(companion)
    local count = call('ZCOUNT', companion, nowms, '+inf')
    return count > 0 and count - call('ZCOUNT', companion, MILD, MILD + nowms - 1) or 0
  end

  -- How many engines wait beside the one that asks.
  local function outside(companion)
    local count = waiting(companion)
    if count > 0 then
      local own = call('ZSCORE', companion, ARGV[1])
      if own and tonumber(own) % MILD >= nowms then
        count = count - 1
      end
    end
    return count
  end

  -- Whether another engine than the one that asks waits for an exclusive hold: no new readers come in then. None counts
  -- for longer than a waiter does: who seems to was there before the clock was set back, and may be dead.
  local function barred(companion, waits)
    local latest = nowms + ARGV[2]
    local count = call('ZCOUNT', companion, nowms, latest)
    local own = count > 0 and waits and tonumber(call('ZSCORE', companion, ARGV[1]) or nil)
    return count > (own and own >= nowms and own <= latest and 1 or 0)
  end

  local function publish(companion)
    local count = outside(companion)
    if count > 0 then
      pcall('PUBLISH', companion, ARGV[1]) -- who may not does without, for waiters poll as well
    end
    return count
  end

  -- What stands at the lock: its string, false when there is none, nil when it is no string; then also whether it is the
  -- set of readers.
  local function read(lock, hold)
    local value = pcall('GET', lock)
    if type(value) ~= 'table' then
      return value
    elseif not string.find(value.err, 'WRONGTYPE', 1, true) then
      call('GET', lock) -- for its error: it was denied
    end
    set = set or readers(nowms, stamp)
    if not set.tidy(lock, hold) then
      return nil, false
    end
    value = pcall('GET', lock)
    if type(value) ~= 'table' then
      return value -- none of them lived
    end
    return nil, true
  end

  -- A try that meets somebody: crowd of readers, or value, or one who waits.
  local function refuse(lock, companion, hold, waits, shared, value, crowd)
    local ttl = call('PTTL', lock)
    if ttl == -1 or crowd == false then
      return 'X'
    elseif value and sub(value, 1, 10) == 'completed:' then
      return 'C,' .. ttl
    end
    if waits then
      local waiting = ARGV[2]
      call('ZREMRANGEBYSCORE', companion, 0, nowms - 1)
      call('ZREMRANGEBYSCORE', companion, MILD, MILD + nowms - 1)
      call('ZADD', companion, (shared and MILD or 0) + nowms + waiting, ARGV[1])
      call('PEXPIRE', companion, waiting * 2)
    end
    local tag, note = 'readers', value
    if value then
      tag = sub(redis.sha1hex(sub(value, 1, 32)), 1, 12)
    else
      note = crowd and set.text(lock, hold) or ''
    end
    note = string.match(note, '%z(.*)$') or ''
    return 'R,' .. ttl .. ',' .. tag .. ',' .. #note .. ',' .. note
  end

  -- Carries out an operation whose fields begin at ARGV[at]. Returns the answer, and how many fields there were.
  local function carry(action, owner, lock, companion, at)
    if not looked then
      look()
    end
    local shared = string.byte(action) < 97
    if shared then
      action, set = string.lower(action), set or readers(nowms, stamp)
    end
    local hold = 'latchkit~hold:' .. sub(companion, 15)
    local value, crowd = read(lock, hold)
    local owns
    if shared then
      owns = crowd and set.has(lock, owner)
    else
      owns = value and sub(value, 1, 33) == owner .. ':'
    end

    if action == 't' or action == 'w' then
      local n, waits = tonumber(ARGV[at + 1]), action == 'w'
      local given = owns and string.match(shared and set.text(lock, hold, owner) or value, ':(%d+):')
      if given then
        -- One that comes again, for the script broke off after it, finds itself.
        counter, spent = math.max(counter, given + n - 1), true
        return 'G,' .. format('%.0f', given + n - 1) .. ',0', 5
      end
      local open = value == false
      if shared then
        open = (open or crowd and not set.marked(lock)) and not barred(companion, waits)
      end
      if not open then
        return refuse(lock, companion, hold, waits, shared, value, crowd), 5
      elseif not remembers or left > 0 or now > tonumber(ARGV[at + 3]) then
        -- There is no holder: what keeps this one out is the node.
        return not remembers and 'U' or left > 0 and 'Q,' .. left or 'T', 5
      elseif not shared then
        return 'R,1,readers,0,', 5 -- they have died in this moment
      end
      local last = reserve(n, tonumber(ARGV[at + 4]))
      last = last + n - 1 - last % n
      counter, spent = last, true
      set.add(lock, hold, owner, ':' .. format('%.0f', last - n + 1) .. stamp .. ARGV[at + 2], ARGV[at])
      if waits then
        call('ZREM', companion, ARGV[1])
      end
      return 'G,' .. format('%.0f', last) .. ',0', 5
    end

    -- Whether the hold can be there, for all that stands there. A reader that holds stays beside the mark that another has
    -- left, and comes back to it.
    local free = value == false or shared and (crowd or value and sub(value, 1, 10) == 'completed:')
    -- A lock that is taken away by force while its holder fills it in could move from the nodes that the force has still
    -- to reach to those where it has been already, and live. So a force leaves a trace, and nothing is filled in beside
    -- it.
    local trace = 'latchkit~forced:' .. lock

    -- Why a lock that nobody holds is not filled in; nil when it may be.
    local function missing(notafter, held, till)
      if not remembers then
        return 'U'
      elseif held == life and now < tonumber(till) then
        return 'A'
      elseif now > tonumber(notafter) or call('EXISTS', trace) == 1 then
        return 'M'
      end
    end

    if action == 'r' then
      if not owns then
        return free and 'A' or 'F', 0
      elseif shared then
        set.drop(lock, hold, owner)
      else
        call('DEL', lock)
      end
      return 'O,0,' .. publish(companion), 0
    elseif action == 'e' then
      local ms = ARGV[at]
      if owns then
        if shared then
          set.extend(lock, hold, owner, ms)
        elseif call('PTTL', lock) < tonumber(ms) then
          call('PEXPIRE', lock, ms)
        end
        return 'O,0,0', 6
      elseif not free then
        return 'F', 6
      end
      local why = missing(ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
      local text = ':' .. ARGV[at + 5] .. stamp .. ARGV[at + 1]
      if not why and shared then
        set.add(lock, hold, owner, text, ms)
      elseif not why then
        call('SET', lock, owner .. text, 'PX', ms)
      end
      return why or 'N', 6
    elseif action == 'k' then
      if not owns and not free then
        return 'F', 5
      end
      local why = not owns and missing(ARGV[at + 2], ARGV[at + 3], ARGV[at + 4])
      if why then
        return why, 5
      elseif crowd then
        set.complete(lock, hold, owner, stamp .. ARGV[at + 1], ARGV[at])
      else
        call('SET', lock, 'completed' .. stamp .. ARGV[at + 1], 'PX', ARGV[at])
      end
      return 'O,0,' .. publish(companion), 5
    elseif action == 'f' or action == 'b' then
      if not owns then
        return free and 'A' or 'F', 2
      end
      spent = true
      if action == 'f' then
        counter = reserve(tonumber(ARGV[at]), tonumber(ARGV[at + 1]))
        return 'O,' .. format('%.0f', counter) .. ',' .. outside(companion), 2
      end
      counter = math.max(counter, tonumber(ARGV[at + 1]))
      local text = string.gsub(shared and set.text(lock, hold, owner) or value, ':%d+:', ':' .. ARGV[at] .. ':', 1)
      if shared then
        set.say(hold, owner, text)
      else
        call('SET', lock, text, 'KEEPTTL')
      end
      return 'O,' .. format('%.0f', counter) .. ',0', 2
    elseif action == 'x' then
      if crowd == false or value and call('PTTL', lock) == -1 then
        return 'X', 2
      elseif now > tonumber(ARGV[at + 1]) then
        return 'T', 2
      end
      call('DEL', lock, hold)
      call('SET', trace, '1', 'PX', ARGV[at])
      return 'O,0,' .. publish(companion), 2
    elseif action == 'l' then
      local place = tonumber(call('ZSCORE', companion, ARGV[1]) or nil)
      call('ZREM', companion, ARGV[1])
      if place and place < MILD and not value then
        publish(companion) -- readers that it has barred
      end
      return 'O,0,0', 0
    elseif action == 'p' then
      call('SET', 'latchkit~probe', '1', 'PX', 1000)
      return 'O,0,0', 0
    elseif crowd == false then
      return 'X', 0
    end
    local all = crowd and set.all(lock, hold, 1000) or {}
    if value then
      all[1] = call('PTTL', lock) .. ',' .. #value .. ',' .. value
    end
    return table.concat({'I', waiting(companion), crowd and 's' or 'x', #all, unpack(all)}, ','), 0
  end

  return carry, outside
end

local answers, at = {}, 8
for k = 3, #KEYS, 2 do
  local lock, companion = KEYS[k], KEYS[k + 1]
  local action, owner = ARGV[at], ARGV[at + 1]
  at = at + 2
  local answer, fields
  if action == 't' or action == 'w' then
    if not looked then
      look()
    end
    if remembers and left == 0 and now <= tonumber(ARGV[at + 3]) then
      local n, proposal = tonumber(ARGV[at + 1]), ARGV[at + 4]
      local last = reserve(n, tonumber(proposal))
      local first = format('%.0f', last - n + 1)
      if call('SET', lock, owner .. ':' .. first .. stamp .. ARGV[at + 2], 'NX', 'PX', ARGV[at]) then
        counter, spent = last, true
        local waiting = 0
        if action == 'w' then
          if not rest then
            rest, outside = others()
          end
          call('ZREM', companion, ARGV[1])
          waiting = outside(companion)
        end
        answer, fields = 'G,' .. (n == 1 and first or format('%.0f', last)) .. ',' .. waiting, 5
      end
    end
  elseif action == 'r' then
    -- When nobody waits, which the companion's absence says.
    local value = pcall('GET', lock)
    if type(value) == 'string' and sub(value, 1, 33) == owner .. ':' and call('EXISTS', companion) == 0 then
      call('DEL', lock)
      answer, fields = 'O,0,0', 0
    end
  end
  if not answer then
    if not rest then
      rest, outside = others()
    end
    answer, fields = rest(action, owner, lock, companion, at)
  end
  at = at + fields
  answers[#answers + 1] = answer
end
if spent then
  call('SET', KEYS[1], format('%.0f', counter))
end
return life .. ',' .. seconds .. micros .. ',' .. left .. ',' .. news .. ';' .. table.concat(answers, ';') .. ';'
