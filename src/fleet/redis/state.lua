-- What all workers share for one key. This text comes before every script.

-- Microseconds, on the clock that all workers share.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- nil if there is nothing, or no number.
local function number(text)
  local value = text and tonumber(text)
  return value == value and value or nil
end

local FIELDS = {'seen', 'at', 'level', 'rate', 'pause', 'pace', 'pace_at'}

local function load_state(key, now)
  local values = redis.call('HMGET', key, unpack(FIELDS))
  local state = {}
  for index, field in ipairs(FIELDS) do
    state[field] = number(values[index])
  end
  -- If the clock was set back, all stored times move with it. Otherwise nothing would refill, and a pause
  -- would last, until the clock reaches the old time.
  local back = math.max(0, (state.seen or now) - now)
  for _, field in ipairs({'at', 'pause', 'pace_at'}) do
    state[field] = state[field] and state[field] - back
  end
  state.seen = now
  return state, back
end

local function save_state(key, state)
  local set, gone = {}, {}
  for _, field in ipairs(FIELDS) do
    if state[field] then
      set[#set + 1] = field
      set[#set + 1] = string.format('%.17g', state[field])
    else
      gone[#gone + 1] = field
    end
  end
  redis.call('HSET', key, unpack(set))
  if #gone > 0 then
    redis.call('HDEL', key, unpack(gone))
  end
end

-- Never shortens the life that another worker has set.
local function expire(key, microseconds)
  local milliseconds = math.ceil(microseconds / 1000)
  if redis.call('PTTL', key) < milliseconds then
    redis.call('PEXPIRE', key, string.format('%.0f', milliseconds))
  end
end
