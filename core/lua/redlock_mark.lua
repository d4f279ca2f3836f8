-- Reads and changes what a node of a RedLock knows of its own memory.
--
-- KEYS  1  the marker, 2 the fence counter
-- ARGV  1  the marker that the caller has seen; empty: only look
--       2  a new random name for a life of the node's memory
--       3  the node's index
--       4  the new state, 5 the greatest TTL in ms, 6 ms of quarantine from now on, 7 the least that the counter may be
--       8  the run id that the caller has seen
-- Reply one string: run id, marker, now in µs, counter, each ended by ",".
--
-- A marker is state ":" life ":" run id ":" greatest TTL in ms ":" end of quarantine in µs ":" index, where state is
--       b  blank: the node has no memory, and this says since when: whoever finds no marker writes this one
--       n  new: all nodes were blank at one instant, a first start
--       r  ready
-- It changes only by comparison with what the caller has seen, run id included, so nobody can act on a node that has
-- lost its memory since he looked: its life has another name then.
local call = redis.call
local seen = ARGV[1]
local clock = call('TIME')
local now = clock[1] * 1000000 + clock[2]
local run = string.match(call('INFO', 'server'), 'run_id:(%w+)')
local mark = call('GET', KEYS[1])
if not mark then
  mark = table.concat({'b', ARGV[2], run, '0', '0', ARGV[3]}, ':')
  call('SET', KEYS[1], mark)
elseif seen == mark and ARGV[8] == run then
  local life, theirs, index = string.match(mark, '^%a:(%w+):(%w+):%d+:%d+:(%d+)$')
  local ms = tonumber(ARGV[6])
  local till = ms > 0 and now + ms * 1000 or 0
  if not life or theirs ~= run then
    life = ARGV[2]
  end
  mark = table.concat({ARGV[4], life, run, ARGV[5], string.format('%.0f', till), index or ARGV[3]}, ':')
  call('SET', KEYS[1], mark)
end
local counter = tonumber(call('GET', KEYS[2]) or '0')
local least = tonumber(ARGV[7])
if counter < least then
  counter = least
  call('SET', KEYS[2], string.format('%.0f', counter))
end
return table.concat({run, mark, string.format('%.0f', now), string.format('%.0f', counter), ''}, ',')
