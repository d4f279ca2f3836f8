-- One node of a RedLock: a batch of operations on exclusive holds, carried out in order.
--
-- KEYS  1            the fence counter of the node
--       2            the node's marker: what it knows of its own memory; lua/redlock_mark.lua writes it
--       2i+1, 2i+2   the lock of operation i, and its companion, as in lua/lock.lua
-- ARGV  1            the engine that asks
--       2            for how long a waiter counts, in ms
--       3            the greatest TTL of the client's locks, in ms
--       4 ..         the operations, each with as many fields as it needs: action, owner, and then
--       t, w         ms, n, meta, not after, proposal   try (and wait): take the lock, reserve n fences
--       e            ms, meta, not after, life, until, fence   extend; fill in where the node never had the lock, has
--                    lost it with its memory, or let it expire
--       r                                               release
--       k            ms, meta, not after, life, until   release but keep others out; fill in as e does
--       f            n, proposal                        reserve n more fences
--       b            fence, counter                     write back: raise the counter, and say the fence in the lock
--       x            ms, not after                      take away by force; leave a trace for ms, see below
--       l, i         nothing                            leave the waiters, inspect
-- Times are the node's own, in µs. "life" is the life of the node's memory in which the caller held the lock here, "-"
-- when it did not; "until" is when the lock expires here as far as the caller knows.
-- Reply one string: an answer of the node, and one for each operation; fields by ",", answers ended by ";":
--       life,now,ms         the life of the node's memory, "-" when it has none or nobody has judged it yet; ms of
--                           quarantine left
--       G,counter,outside   granted: the last of the n fences
--       R,ms,tag,len,note   refused: the holder's TTL, a name for the holder that is no secret, and its note
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
--       I,ms,waiters,len,value   what stands there; ms is -2 when nothing does
--
-- A restart is seen by the run id, in every call: a marker that a snapshot brought back names another process. INFO
-- costs the server about 4 µs a batch; to ask once for each connection would not do, for the pool is shared with the
-- application, whose own commands may have opened the connection after the restart.
local call, pcall = redis.call, redis.pcall
local engine, waiting, greatest = ARGV[1], ARGV[2], tonumber(ARGV[3])
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local nowms = math.floor(now / 1000)
local counter, spent

local mark = call('GET', KEYS[2]) or ''
local state, life, run, most, quarantine, index = string.match(mark, '^(%a):(%w+):(%w+):(%d+):(%d+):(%d+)$')
local remembers = state == 'r' and string.find(call('INFO', 'server'), 'run_id:' .. run, 1, true) ~= nil
local left = 0
if remembers then
  left = math.max(0, math.ceil((tonumber(quarantine) - now) / 1000))
  if tonumber(most) < greatest then
    -- Before any lock with such a TTL is taken here.
    call('SET', KEYS[2], table.concat({state, life, run, ARGV[3], quarantine, index}, ':'))
  end
else
  life = '-'
end

local cursor = 3
local function field()
  cursor = cursor + 1
  return ARGV[cursor]
end
local function number()
  return tonumber(field())
end
local function text(n)
  return string.format('%.0f', n)
end

-- Reserves n fences, the last of which is returned: above all before, at the clock, and where the proposal says if that
-- is not far ahead of the clock, so that all nodes agree.
local function reserve(n, proposal)
  if not counter then
    counter = tonumber(call('GET', KEYS[1]) or '0')
  end
  counter = math.max(counter + n, now + n - 1, math.min(proposal, now + 100000))
  spent = true
  return counter
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

local function compose(owner, first, meta)
  return owner .. ':' .. text(first) .. ':' .. clock[1] .. '.' .. clock[2] .. ':' .. meta
end

local function refuse(lock, companion, value, waits)
  local ttl = call('PTTL', lock)
  if ttl == -1 or value == nil then
    return 'X'
  end
  if string.sub(value, 1, 10) == 'completed:' then
    return 'C,' .. ttl
  end
  if waits then
    call('ZREMRANGEBYSCORE', companion, '-inf', nowms - 1)
    call('ZADD', companion, nowms + waiting, engine)
    call('PEXPIRE', companion, waiting * 2)
  end
  local tag = string.sub(redis.sha1hex(string.sub(value, 1, 32)), 1, 12)
  local note = string.match(value, '%z(.*)$') or ''
  return 'R,' .. ttl .. ',' .. tag .. ',' .. #note .. ',' .. note
end

local function try(lock, companion, owner, waits)
  local ms, n, meta, notafter, proposal = field(), number(), field(), number(), number()
  local value = read(lock)
  if value ~= false then
    return refuse(lock, companion, value, waits)
  elseif not remembers then
    return 'U'
  elseif left > 0 then
    return 'Q,' .. left
  elseif now > notafter then
    return 'T'
  end
  local last = reserve(n, proposal)
  call('SET', lock, compose(owner, last - n + 1, meta), 'PX', ms)
  local outside = 0
  if waits then
    call('ZREM', companion, engine)
    outside = others(companion)
  end
  return 'G,' .. text(last) .. ',' .. outside
end

-- A lock that is taken away by force while its holder fills it in could move from the nodes that the force has still to
-- reach to those where it has been already, and live. So a force leaves a trace, and nothing is filled in beside it.
local function trace(lock)
  return 'latchkit~forced:' .. lock
end

-- Nobody holds the lock: deleted, or may it be filled in?
local function missing(lock, notafter, held, till)
  if not remembers then
    return 'U'
  elseif held == life and now < till then
    return 'A'
  elseif now > notafter or call('EXISTS', trace(lock)) == 1 then
    return 'M'
  end
end

local function extend(lock, owner, value, owns)
  local ms, meta, notafter, held, till, fence = field(), field(), number(), field(), number(), number()
  if owns then
    if call('PTTL', lock) < tonumber(ms) then
      call('PEXPIRE', lock, ms)
    end
    return 'O,0,0'
  elseif value ~= false then
    return 'F'
  end
  local why = missing(lock, notafter, held, till)
  if not why then
    call('SET', lock, compose(owner, fence, meta), 'PX', ms)
  end
  return why or 'N'
end

local function publish(lock, companion)
  local outside = others(companion)
  if outside > 0 then
    call('PUBLISH', companion, engine)
  end
  return outside
end

local function keep(lock, companion, value, owns)
  local ms, meta, notafter, held, till = field(), field(), number(), field(), number()
  if value ~= false and not owns then
    return 'F'
  end
  local why = not owns and missing(lock, notafter, held, till)
  if not why then
    call('SET', lock, 'completed:' .. clock[1] .. '.' .. clock[2] .. ':' .. meta, 'PX', ms)
  end
  return why or 'O,0,' .. publish(lock, companion)
end

local function writeBack(lock, value, owns)
  local fence, to = field(), number()
  if not owns then
    return value and 'F' or 'A'
  end
  counter = math.max(counter or tonumber(call('GET', KEYS[1]) or '0'), to)
  spent = true
  call('SET', lock, (string.gsub(value, ':%d+:', ':' .. fence .. ':', 1)), 'KEEPTTL')
  return 'O,' .. text(counter) .. ',0'
end

local function inspect(lock, companion, value)
  if value == false then
    return 'I,-2,' .. call('ZCOUNT', companion, nowms, '+inf') .. ',0,'
  elseif value == nil then
    return 'X'
  end
  return 'I,' .. call('PTTL', lock) .. ',' .. call('ZCOUNT', companion, nowms, '+inf') .. ',' .. #value .. ',' .. value
end

local function force(lock, companion, value)
  local ms, notafter = field(), number()
  if value == nil or value and call('PTTL', lock) == -1 then
    return 'X'
  elseif now > notafter then
    return 'T'
  end
  call('DEL', lock)
  call('SET', trace(lock), '1', 'PX', ms)
  return 'O,0,' .. publish(lock, companion)
end

local function operate(lock, companion)
  local action, owner = field(), field()
  if action == 't' or action == 'w' then
    return try(lock, companion, owner, action == 'w')
  elseif action == 'l' then
    call('ZREM', companion, engine)
    return 'O,0,0'
  end
  local value = read(lock)
  if action == 'i' then
    return inspect(lock, companion, value)
  elseif action == 'x' then
    return force(lock, companion, value)
  end
  local owns = value and string.sub(value, 1, 33) == owner .. ':'
  if action == 'e' then
    return extend(lock, owner, value, owns)
  elseif action == 'k' then
    return keep(lock, companion, value, owns)
  elseif action == 'b' then
    return writeBack(lock, value, owns)
  elseif action == 'f' then
    local n, proposal = number(), number()
    if owns then
      return 'O,' .. text(reserve(n, proposal)) .. ',' .. others(companion)
    end
  elseif owns then
    call('DEL', lock)
    return 'O,0,' .. publish(lock, companion)
  end
  return value == false and 'A' or 'F'
end

local answers = {life .. ',' .. text(now) .. ',' .. left}
for k = 3, #KEYS, 2 do
  answers[#answers + 1] = operate(KEYS[k], KEYS[k + 1])
end
if spent then
  call('SET', KEYS[1], text(counter))
end
return table.concat(answers, ';') .. ';'
