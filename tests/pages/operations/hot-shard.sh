kill -9 $(cat slow.pid feed.pid)
fleet hot 18103
(python3 feed.py hot slow a a a a b & echo $! > feed.pid)
sleep 8
