-- One decision about retries. The same as `RetrySlots::take` in memory/retry_slots.rs, line by line.
local key = KEYS[1]
local deposits = number(ARGV[1])
local want = number(ARGV[2])
local unused = number(ARGV[3])
local width = number(ARGV[4])
local ratio = number(ARGV[5])
local reserve = number(ARGV[6])
local life = number(ARGV[7])
local successes = number(ARGV[8])
local failures = number(ARGV[9])
local per_sec = number(ARGV[10])

local SECOND = 1000000
local POOL_LIFE = 3600 * SECOND

local now = clock()
local open = math.floor(now / width) * width

-- Slots are named by their start, so that workers with another ttl can read them.
local slots, current = {}, {start = open, deposits = 0, taken = 0}
local function forget(name)
  redis.call('HDEL', key, name)
end
local function write(slot)
  redis.call('HSET', key, string.format('%.0f', slot.start), string.format('%.0f %.0f', slot.deposits, slot.taken))
end

-- The pool that successes refill. Without an entry it is full.
local level, refilled = reserve, now

local entries = redis.call('HGETALL', key)
for index = 1, #entries, 2 do
  local start = number(entries[index])
  local deposited, taken = string.match(entries[index + 1], '^(%d+) (%d+)$')
  if entries[index] == 'pool' then
    local stored, at = string.match(entries[index + 1], '^(%S+) (%S+)$')
    level, refilled = math.max(0, number(stored) or reserve), number(at) or now
  elseif not (start and deposited) or start <= open - 16 * width then
    forget(entries[index])
  elseif start == open then
    current.deposits = current.deposits + deposited
    current.taken = current.taken + taken
  elseif start > now then
    -- The clock was set back. The slot counts as the open one, because it would expire too late.
    forget(entries[index])
    current.deposits = current.deposits + deposited
    current.taken = current.taken + taken
  else
    slots[#slots + 1] = {start = start, deposits = tonumber(deposited), taken = tonumber(taken)}
  end
end
table.sort(slots, function(one, other) return one.start < other.start end)
slots[#slots + 1] = current

local passed = math.max(0, now - refilled) / SECOND
level = math.min(reserve, level + math.min(successes, passed * per_sec))
local back = math.min(unused, math.ceil(reserve - level))
level = math.min(reserve, level + back)
unused = unused - back
refilled = successes > 0 and now or math.min(refilled, now)

-- Gives back to the oldest slot first. In a newer one, the retry would count twice once the debit expires.
for _, slot in ipairs(slots) do
  local back = math.min(unused, slot.taken)
  if back > 0 then
    slot.taken = slot.taken - back
    unused = unused - back
    write(slot)
  end
end

current.deposits = current.deposits + deposits
local deposited, taken = 0, 0
for _, slot in ipairs(slots) do
  deposited = deposited + slot.deposits
  taken = taken + slot.taken
end

-- The wanted retries, and half a retry for each failure without one.
local from_pool = math.min(want, math.floor(level + 0.000001))
level = math.max(0, level - from_pool - failures / 2)

local saved = math.max(0, deposited * ratio - taken)
-- The tolerance makes ten times 0.1 a whole retry.
local from_window = math.min(want - from_pool, math.floor(saved + 0.000001))
current.taken = current.taken + from_window
write(current)
redis.call('HSET', key, 'pool', string.format('%.17g %.0f', level, refilled))
expire(key, level < reserve and math.max(life, POOL_LIFE) or life)
local balance = level + math.max(0, saved - from_window)
return {from_pool + from_window, string.format('%.17g', balance)}
