kill -9 $(cat stuck.pid)
fleet slow 18102
(python3 feed.py slow slow a b c d e f & echo $! > feed.pid)
sleep 8
