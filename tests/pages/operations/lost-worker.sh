kill -9 $(cat swallowed.pid)
fleet lost 18106
kill -9 $(cat lost.pid)
sleep 1
