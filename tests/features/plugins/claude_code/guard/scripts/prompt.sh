grep -q '"prompt":"stop' && echo '{"decision": "block", "reason": "not today"}'
exit 0
