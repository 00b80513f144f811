kill -9 $(cat hot.pid feed.pid)
fleet poison 18104 'childFailurePolicy = restart'
python3 put.py poison a poison
until test $(grep -c 'a new child starts' poison.log) -ge 3; do sleep 0.2; done
sleep 4
