-- Pauses all workers and tells the subscribers. The same as `KeyState::pause` in memory/key_state.rs.
local state_key = KEYS[1]
local length = number(ARGV[1])
local channel = ARGV[2]
local name = ARGV[3]

local now = clock()
local state = load_state(state_key, now)
local before = math.max(now, state.pause or now)
state.pause = math.max(before, now + length)
save_state(state_key, state)
expire(state_key, math.max(60000000, state.pause - now + 1000000))
-- Many workers receive the same pause from a server. One message is enough.
if state.pause - before > 5000 then
  local milliseconds = math.ceil((state.pause - now) / 1000)
  redis.call('PUBLISH', channel, string.format('%.0f ', milliseconds) .. name)
end
return 0
