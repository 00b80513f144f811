kcl-mld local --properties properties/slow-service.properties --put records.jsonl --shards 1 -- --http 127.0.0.1:18098 2> worker.log &
until curl -s http://127.0.0.1:18098/leases | grep -q '"child":3'; do sleep 0.2; done
