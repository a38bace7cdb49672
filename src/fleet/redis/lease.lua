-- One decision about sending. The same as `KeyState::lease` in memory/key_state.rs, line by line.
local state_key, workers_key, waiting_key = KEYS[1], KEYS[2], KEYS[3]
local worker = ARGV[1]
local per_second = number(ARGV[2])
local burst = number(ARGV[3])
local want = number(ARGV[4])
local unused = number(ARGV[5])
local period = number(ARGV[6])
local pace_before = number(ARGV[7])
local pace_now = number(ARGV[8])

local SECOND = 1000000
local PACE_LIFE = 60 * SECOND
local STATE_LIFE = 60 * SECOND

local now = clock()
local state, back = load_state(state_key, now)
if back > SECOND then
  redis.call('DEL', workers_key, waiting_key)
end

-- The workers.
local life = math.max(3 * period, 3 * SECOND)
redis.call('ZREMRANGEBYSCORE', workers_key, '-inf', string.format('%.0f', now))
redis.call('ZADD', workers_key, string.format('%.0f', now + life), worker)
expire(workers_key, life)
local workers = redis.call('ZCARD', workers_key)

local tokens, retry_after = want, 0
if per_second then
  local fair = math.max(1, per_second * period / SECOND / workers)

  -- The tokens.
  local level = state.level
  if level and level < 0 and state.rate and state.rate ~= per_second then
    level = math.max(level * per_second / state.rate, -fair)
  end
  local passed = math.max(0, now - (state.at or now))
  level = level and level + passed * per_second / SECOND or burst
  level = math.min(burst, level + unused)

  -- Refused workers that wait for their turn.
  local patience = math.min(math.max(period, SECOND / 20), SECOND)
  redis.call('ZREMRANGEBYSCORE', waiting_key, '-inf', string.format('%.0f', now - patience))
  local turn = number(redis.call('ZSCORE', waiting_key, worker))
  local others = redis.call('ZCARD', waiting_key) - (turn and 1 or 0)
  others = math.min(others, workers - 1)
  local due = turn and turn <= now

  -- What this worker may take.
  local chunk = math.ceil(fair / 2)
  local ahead = due and 0 or others * chunk
  local room = level + fair - ahead
  local share = fair + math.max(0, level - workers * fair)
  if others > 0 then
    share = math.min(share, chunk)
  end
  tokens = math.min(want, math.max(0, math.floor(math.min(room, share))))
  level = level - tokens

  if tokens == 0 and want > 0 then
    if not turn or due then
      local missing = math.min(want, chunk) - (level + fair)
      turn = now + math.max(1000, math.ceil((missing + ahead) / per_second * SECOND))
      redis.call('ZADD', waiting_key, string.format('%.0f', turn), worker)
      expire(waiting_key, turn - now + patience)
    end
    local one = math.ceil((1 - (level + fair)) / per_second * SECOND)
    retry_after = math.max(1000, math.min(turn - now, math.max(period, one)))
  elseif turn then
    redis.call('ZREM', waiting_key, worker)
  end

  state.level, state.at, state.rate = level, now, per_second
end

-- The adaptive rate of all workers together.
if state.pace_at and now - state.pace_at > PACE_LIFE then
  state.pace, state.pace_at = nil, nil
end
if pace_now then
  local total = state.pace and state.pace + (pace_now - pace_before) or pace_now * workers
  state.pace = math.min(math.max(total, 1 / 30), 1000000)
  state.pace_at = now
end

local pause = math.max(0, (state.pause or now) - now)
if pause == 0 then
  state.pause = nil
end

save_state(state_key, state)
local refill = per_second and 2 * (burst - state.level) / per_second * SECOND or 0
expire(state_key, math.max(STATE_LIFE, refill, pause + SECOND))
return {tokens, retry_after, pause, workers, state.pace and string.format('%.17g', state.pace) or ''}
