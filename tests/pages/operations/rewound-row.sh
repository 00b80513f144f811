kill -9 $(cat edited.pid)
fleet rewound 18111
python3 put.py rewound a one
until curl -s http://127.0.0.1:18111/leases | grep -q '"checkpoint":"[0-9]'; do sleep 0.2; done
( (sleep 6; python3 edit.py rewound shardId-000000000000 checkpoint TRIM_HORIZON) & )
