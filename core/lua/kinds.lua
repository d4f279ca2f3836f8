-- Holds of every kind: shared, limited, fair, and counted across processes; exclusive ones too, when they share a batch
-- with others. Operations are carried out in order.
--
-- KEYS  1           the fence counter that all locks of this batch share
--       4i-2 ..     for operation i the lock and its companions: wait, hold, line
-- ARGV  1           PUBLISH or SPUBLISH
--       2           for how long a waiter counts, in ms
--       11i-8 ..    for operation i: action, kind, fair, owner, ms, n, limit, waiter, ticket, join, meta
-- Actions: t try, e extend, r release, k release but keep others out, f refill, a arrive, l leave.
-- Kinds: x exclusive, s shared, l limited. Fair is "1" or empty. Waiter is the engine, if it waits.
-- Reply as lua/lock.lua's; n of an arrive is 1 when the ticket is new.
--
-- The lock of an exclusive hold is the string of lua/lock.lua. That of the others is a sorted set with one member for
-- each holder, its kind and its owner, whose score is its deadline in ms by this server's clock; the set's TTL ends with
-- the greatest of them. So SET NX, ours and everybody's, is kept out while one holder lives. A member "c" is a completed
-- mark beside holders that are still there.
--
-- hold is a hash. Beside a set: owner → ":" fence ":" seconds "." microseconds ":" meta. Beside a string whose owner was
-- carried to other processes: root → that owner, and for each who takes part, the first included, owner → deadline in
-- ms; keep → until when to keep others out once the last has gone.
--
-- wait is a sorted set of the engines that wait: until when each counts, in ms, plus FAIR when it waits in line for an
-- exclusive hold, or MILD when for another kind. So those without an addend are exclusive ones that nobody in line may
-- pass either.
--
-- line is a sorted set of two things: tickets (kind, engine, 16 digits) by their arrival in µs, and engines by the time
-- in ms until which they count as alive. A ticket of an engine that is dead is dropped by whoever stands behind it. One of
-- an engine that has been silent for a heartbeat is passed over, and keeps its place. An engine's places are its own
-- to distribute: whoever asks for it takes its first one.
local call = redis.call
local sub, byte, find, match, format = string.sub, string.byte, string.find, string.match, string.format
local publish, patience = ARGV[1], tonumber(ARGV[2])
local heartbeat = patience / 5
if publish == 'SPUBLISH' and not redis.REDIS_VERSION_NUM then
  publish = 'PUBLISH' -- a server older than 7
end
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local nowms = math.floor(now / 1000)
local stamp = ':' .. clock[1] .. '.' .. clock[2] .. ':'
local FAIR, MILD = 1e15, 2e15
local counter, spent

local function int(n)
  return format('%.0f', n)
end

local function readCounter()
  counter = counter or tonumber(call('GET', KEYS[1]) or '0')
end

-- The fences first .. first+n-1, as in lua/lock.lua.
local function reserve(n)
  readCounter()
  n = math.max(1, math.min(n, now - counter))
  local first = math.max(now - n + 1, counter + 1)
  counter, spent = first + n - 1, true
  return first, n
end

local function done(fence, n, outside)
  return 'O,' .. int(fence) .. ',' .. int(n) .. ',' .. outside
end

local function granted(fence)
  return 'G,' .. fence .. ',1,0'
end

-- A replay finds itself. The script that granted may have broken off before it could save the counter.
local function again(fence)
  readCounter()
  if tonumber(fence) > counter then
    counter, spent = tonumber(fence), true
  end
  return granted(fence)
end

-- Other engines that wait, those included that have died lately.
local function others(o)
  local count = call('ZCARD', o.wait)
  if count > 0 and o.waiter ~= '' and call('ZSCORE', o.wait, o.waiter) then
    count = count - 1
  end
  return count
end

-- Tells the others that the lock may have become free. One who takes part in another's hold tells its own engine too:
-- somebody there may wait for that hold.
local function wake(o)
  local outside = others(o)
  if outside > 0 or o.join ~= '' then
    redis.pcall(publish, o.wait, o.join == '' and o.waiter or '')
  end
  return outside
end

-- Turns what is left of a set into a completed mark of ms.
local function complete(o, ms, meta)
  call('SET', o.lock, 'completed' .. meta, 'PX', int(ms))
  call('DEL', o.hold)
end

-- Drops the dead from the set at the lock. Returns how many live, and until when a completed mark stands beside them.
-- Afterwards the set ends with the last of them.
local function tidy(o)
  local dead = call('ZRANGEBYSCORE', o.lock, '-inf', nowms)
  if #dead > 0 then
    call('ZREMRANGEBYSCORE', o.lock, '-inf', nowms)
    for i = 1, #dead do
      call('HDEL', o.hold, sub(dead[i], 2))
    end
  end
  local count = call('ZCARD', o.lock)
  if count == 0 then
    call('DEL', o.hold)
    return 0
  end
  local mark = tonumber(call('ZSCORE', o.lock, 'c') or nil)
  if mark and count == 1 then
    complete(o, mark - nowms, call('HGET', o.hold, '') or stamp)
    return 0, mark
  end
  local last = tonumber(call('ZREVRANGE', o.lock, 0, 0, 'WITHSCORES')[2])
  call('PEXPIREAT', o.lock, int(last))
  call('PEXPIREAT', o.hold, int(last))
  return mark and count - 1 or count, mark
end

-- What stands at the lock: free, one (with value, owner, left; or completed), many (with kind, count), or no lock.
local function look(o)
  local form = call('TYPE', o.lock).ok
  if form == 'none' then
    return { form = 'free' }
  end
  local left = call('PTTL', o.lock)
  if left == -1 then
    return { form = 'other' }
  end
  left = left < 1 and 1 or left -- 0 in its last millisecond, which would mean that it is not known
  if form == 'string' then
    local value = call('GET', o.lock)
    local owner = match(value, '^(%x+)[:*]%d+:')
    return { form = 'one', left = left, value = value, owner = owner and #owner == 32 and owner,
      completed = sub(value, 1, 10) == 'completed:' }
  end
  local some = form == 'zset' and call('ZRANGE', o.lock, 0, 1)
  if not some or not (some[1] == 'c' or find(some[1], '^[sl]%x+$')) then
    return { form = 'other' }
  end
  local count, mark = tidy(o)
  if count == 0 then
    return mark and { form = 'one', left = mark - nowms, value = '', completed = true } or { form = 'free' }
  end
  some = call('ZRANGE', o.lock, 0, 1)
  return { form = 'many', count = count, kind = sub(some[1] == 'c' and some[2] or some[1], 1, 1), mark = mark }
end

local function room(o, at, ahead)
  if at.form == 'free' then
    return o.kind ~= 'l' or ahead < o.limit
  end
  if at.form ~= 'many' or at.mark or o.kind == 'x' or at.kind ~= o.kind then
    return false
  end
  return o.kind == 's' or at.count + ahead < o.limit
end

-- Whether an exclusive one waits that must not be passed.
local function barred(o)
  if o.kind == 'x' then
    return false
  end
  local own = o.waiter ~= '' and tonumber(call('ZSCORE', o.wait, o.waiter) or nil)
  -- Nobody counts for longer than patience: who does was there before the clock was set back, and may be dead.
  local function waits(addend)
    local from, to = addend + nowms, addend + nowms + patience
    local count = call('ZCOUNT', o.wait, int(from), int(to))
    return count > (own and own >= from and own <= to and 1 or 0)
  end
  return waits(0) or not o.fair and waits(FAIR)
end

-- The place of this engine in line: its first ticket, or "" when it has none, and how many of the same kind stand
-- before it. When somebody alive of another kind does: nil, and how long it may be silent before it is passed over.
local function place(o)
  local ahead, passed = 0, 0
  while true do
    local some = call('ZRANGEBYSCORE', o.line, int(FAIR), '+inf', 'LIMIT', ahead + passed, 64)
    for i = 1, #some do
      local ticket = some[i]
      local whose = sub(ticket, 2, 17)
      if whose == o.waiter then
        return ticket, ahead
      end
      local alive = tonumber(call('ZSCORE', o.line, whose) or '0')
      if alive > nowms + patience then -- the clock was set back: it has as long as any other to say that it lives
        alive = nowms + patience
        call('ZADD', o.line, int(alive), whose)
      end
      local heard = alive - patience
      if alive <= nowms then
        call('ZREM', o.line, ticket)
      elseif heard + heartbeat <= nowms then
        passed = passed + 1
      elseif o.kind == 'x' or byte(ticket) ~= byte(o.kind) then
        return nil, heard + heartbeat - nowms
      else
        ahead = ahead + 1
      end
    end
    if #some < 64 then
      return '', ahead
    end
  end
end

-- Puts the ticket in line, unless it is there, and says that its engine lives. Returns 1 when it was not there.
local function arrive(o)
  local new = 0
  if not call('ZSCORE', o.line, o.kind .. o.ticket) then
    local last = call('ZREVRANGE', o.line, 0, 0, 'WITHSCORES')[2]
    call('ZADD', o.line, int(math.max(now, tonumber(last or '0') + 1)), o.kind .. o.ticket)
    new = 1
  end
  call('ZADD', o.line, int(nowms + patience), sub(o.ticket, 1, 16))
  call('PEXPIRE', o.line, int(2 * patience))
  return new
end

-- Counts the engine among those that wait, and leaves the mark that has an exclusive holder's release look for them.
local function register(o, at)
  if at.owner and byte(at.value, 33) ~= 42 then
    call('SETRANGE', o.lock, 32, '*')
  end
  call('ZREMRANGEBYSCORE', o.wait, '-inf', nowms - 1)
  call('ZREMRANGEBYSCORE', o.wait, int(FAIR), '(' .. int(FAIR + nowms))
  call('ZREMRANGEBYSCORE', o.wait, int(MILD), '(' .. int(MILD + nowms))
  local addend = o.kind ~= 'x' and MILD or o.fair and FAIR or 0
  local ends = addend + nowms + patience
  if addend == 0 then
    local own = tonumber(call('ZSCORE', o.wait, o.waiter) or nil)
    if own and own < FAIR then
      ends = math.max(own, nowms + math.floor(patience * 2 / 3)) -- it keeps its turn, as in lua/lock.lua
    end
  end
  call('ZADD', o.wait, int(ends), o.waiter)
  call('PEXPIRE', o.wait, int(2 * patience))
  return o.ticket ~= '' and arrive(o) or 0
end

-- For how long the hold stays out unless somebody releases: until one permit is free, or all have gone.
local function left(o, at)
  if at.form ~= 'many' then
    return at.left or 0
  end
  local range = o.kind == 'l' and at.kind == 'l' and not at.mark and 'ZRANGE' or 'ZREVRANGE'
  return tonumber(call(range, o.lock, 0, 0, 'WITHSCORES')[2]) - nowms
end

local function note(o, at)
  local text = at.owner and at.value
  if at.form == 'many' then
    text = call('HGET', o.hold, sub(call('ZRANGE', o.lock, 0, 0)[1], 2))
  end
  return text and match(text, '%z(.*)$') or ''
end

local function refuse(o, at, blocked)
  if o.waiter ~= '' then
    register(o, at)
  end
  local ms = left(o, at)
  if blocked and (ms == 0 or blocked < ms) then
    ms = blocked
  end
  if at.form == 'one' and not at.owner and not at.completed then
    return 'S,' .. int(ms)
  end
  local text = note(o, at)
  return 'R,' .. int(ms) .. ',' .. #text .. ',' .. text
end

-- Adds a holder to the set at the lock.
local function add(o, fence)
  call('ZADD', o.lock, int(nowms + o.ms), o.kind .. o.owner)
  call('HSET', o.hold, o.owner, ':' .. fence .. stamp .. o.meta)
  tidy(o)
end

-- Gives up the engine's first place in line. The ticket that had it moves to where this one stands.
local function leaveLine(o, first)
  local mine = o.kind .. o.ticket
  if first ~= '' and first ~= mine then
    call('ZADD', o.line, call('ZSCORE', o.line, mine) or int(now), first)
  end
  call('ZREM', o.line, mine)
end

local function grant(o, at, first)
  local fence = int(reserve(1))
  if o.kind == 'x' then
    -- Some may have been refused while it was free, since it was not their turn.
    call('SET', o.lock, o.owner .. (others(o) > 0 and '*' or ':') .. fence .. stamp .. o.meta, 'PX', o.ms)
  else
    if at.form == 'free' then
      call('DEL', o.hold)
    end
    add(o, fence)
  end
  if o.waiter ~= '' then
    call('ZREM', o.wait, o.waiter)
  end
  if o.ticket ~= '' then
    leaveLine(o, first)
  end
  return granted(fence)
end

-- Takes part in the hold of another process.
local function join(o, at)
  if at.form == 'one' and at.owner == o.join then
    if call('HGET', o.hold, 'root') ~= o.join then
      call('DEL', o.hold)
      call('HSET', o.hold, 'root', o.join, o.join, int(nowms + at.left))
    end
    call('HSET', o.hold, o.owner, int(nowms + o.ms))
    if at.left < o.ms then
      call('PEXPIRE', o.lock, o.ms)
    end
    call('PEXPIRE', o.hold, call('PTTL', o.lock))
    return granted(match(at.value, '^%x+[:*](%d+):'))
  end
  if at.kind == 's' and o.kind == 's' and call('ZSCORE', o.lock, 's' .. o.join) then
    local fence = match(call('HGET', o.hold, o.join), '^:(%d+):')
    add(o, fence)
    return granted(fence)
  end
  return at.form == 'free' and 'A' or 'F'
end

local function try(o)
  local at = look(o)
  if at.form == 'other' then
    return 'X'
  end
  if o.join ~= '' then
    return join(o, at)
  end
  if at.owner == o.owner then
    return again(match(at.value, '^%x+[:*](%d+):'))
  end
  if at.form == 'many' and call('ZSCORE', o.lock, o.kind .. o.owner) then
    return again(match(call('HGET', o.hold, o.owner), '^:(%d+):'))
  end
  if at.completed then
    return 'C,' .. int(at.left)
  end
  local first, ahead = '', 0
  if o.fair then
    first, ahead = place(o)
    if not first then
      return refuse(o, at, room(o, at, 0) and ahead)
    end
  end
  if not barred(o) and room(o, at, ahead) then
    return grant(o, at, first)
  end
  return refuse(o, at)
end

-- Whether the operation's owner takes part in the hold of the string at the lock. With "counted", others may too.
local function partOf(o, at)
  if at.owner ~= (o.join ~= '' and o.join or o.owner) then
    return false, 'F'
  end
  if o.join == '' or call('HGET', o.hold, 'root') ~= o.join then
    return o.join == '' or o.join == o.owner, 'A'
  end
  return call('HEXISTS', o.hold, o.owner) == 1, 'A', true
end

-- Whether others take part still, once this one has gone.
local function shared(o)
  local all = call('HGETALL', o.hold)
  for i = 1, #all, 2 do
    if all[i] ~= 'root' and all[i] ~= 'keep' and tonumber(all[i + 1]) > nowms then
      return true
    end
  end
  return false
end

local function releaseOne(o, at, keep)
  local part, absent, counted = partOf(o, at)
  if not part then
    return absent
  end
  if counted then
    call('HDEL', o.hold, o.owner)
    if keep and o.owner == o.join then
      call('HSET', o.hold, 'keep', int(nowms + keep))
    end
    if shared(o) then
      return done(0, 0, 0)
    end
    keep = tonumber(call('HGET', o.hold, 'keep') or '0') - nowms
    keep = keep > 0 and keep
    call('DEL', o.hold)
  end
  if keep then
    complete(o, keep, stamp .. o.meta)
  else
    call('DEL', o.lock)
  end
  return done(0, 0, wake(o))
end

local function release(o, keep)
  local at = look(o)
  if at.form == 'one' then
    return releaseOne(o, at, keep)
  end
  if at.form ~= 'many' then
    return at.form == 'free' and 'A' or 'F'
  end
  if call('ZREM', o.lock, o.kind .. o.owner) == 0 then
    return o.kind == 'x' and 'F' or 'A'
  end
  call('HDEL', o.hold, o.owner)
  if keep then
    call('ZADD', o.lock, int(nowms + keep), 'c')
    call('HSET', o.hold, '', stamp .. o.meta)
  end
  tidy(o)
  return done(0, 0, wake(o))
end

local function extend(o)
  local at = look(o)
  if at.form == 'one' then
    local part, absent, counted = partOf(o, at)
    if not part then
      return absent
    end
    if counted and tonumber(call('HGET', o.hold, o.owner)) < nowms + o.ms then
      call('HSET', o.hold, o.owner, int(nowms + o.ms))
    end
    if at.left < o.ms then
      call('PEXPIRE', o.lock, o.ms)
    end
    if counted then
      call('PEXPIRE', o.hold, call('PTTL', o.lock))
    end
    return done(0, 0, 0)
  end
  local deadline = at.form == 'many' and tonumber(call('ZSCORE', o.lock, o.kind .. o.owner) or nil)
  if not deadline then
    return at.form == 'other' and 'F' or 'A'
  end
  if deadline < nowms + o.ms then
    call('ZADD', o.lock, int(nowms + o.ms), o.kind .. o.owner)
    tidy(o)
  end
  return done(0, 0, 0)
end

local function refill(o)
  local at = look(o)
  if at.form == 'one' then
    local part, absent = partOf(o, at)
    if not part then
      return absent
    end
  elseif at.form ~= 'many' or not call('ZSCORE', o.lock, o.kind .. o.owner) then
    return at.form == 'other' and 'F' or 'A'
  end
  local first, n = reserve(o.n)
  return done(first, n, others(o))
end

-- Those who were kept out by who leaves are told: readers by an exclusive one that waited, those in line by its first.
local function leave(o)
  local opens = false
  if o.ticket ~= '' then
    local mine = o.kind .. o.ticket
    local place = call('ZSCORE', o.line, mine)
    opens = place and call('ZCOUNT', o.line, int(FAIR), '(' .. place) == 0
    call('ZREM', o.line, mine)
  end
  if o.waiter ~= '' then
    local place = tonumber(call('ZSCORE', o.wait, o.waiter) or nil)
    opens = opens or place and place < MILD
    call('ZREM', o.wait, o.waiter)
  end
  if opens and look(o).form ~= 'one' then
    wake(o)
  end
  return done(0, 0, 0)
end

local function carry(o, action)
  if action == 't' then
    return try(o)
  elseif action == 'e' then
    return extend(o)
  elseif action == 'r' then
    return release(o)
  elseif action == 'k' then
    return release(o, o.ms)
  elseif action == 'f' then
    return refill(o)
  elseif action == 'a' then
    return done(0, register(o, look(o)), 0)
  end
  return leave(o)
end

local replies = {}
local a = 3
for k = 2, #KEYS, 4 do
  replies[#replies + 1] = carry({
    lock = KEYS[k], wait = KEYS[k + 1], hold = KEYS[k + 2], line = KEYS[k + 3],
    kind = ARGV[a + 1], fair = ARGV[a + 2] ~= '', owner = ARGV[a + 3], ms = tonumber(ARGV[a + 4]),
    n = tonumber(ARGV[a + 5]), limit = tonumber(ARGV[a + 6]), waiter = ARGV[a + 7], ticket = ARGV[a + 8],
    join = ARGV[a + 9], meta = ARGV[a + 10],
  }, ARGV[a])
  a = a + 11
end
if spent then
  call('SET', KEYS[1], int(counter))
end
replies[#replies + 1] = ''
return table.concat(replies, ';')
