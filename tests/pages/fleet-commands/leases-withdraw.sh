kcl-mld leases release app.properties shardId-000000000000 --execute 2> asked.log > /dev/null &
until grep -qs asking asked.log || ! kill -0 $! 2> /dev/null; do sleep 0.05; done
kill -STOP $(cat w1.pid)
kill -9 $! 2> /dev/null || true
