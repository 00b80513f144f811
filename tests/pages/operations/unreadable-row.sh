kill -9 $(cat deleted.pid)
fleet edited 18110
python3 put.py edited a one
until curl -s http://127.0.0.1:18110/leases | grep -q '"checkpoint":"[0-9]'; do sleep 0.2; done
python3 edit.py edited shardId-000000000000 checkpoint
