kill -9 $(cat poison.pid)
fleet swallowed 18105
python3 put.py swallowed a bad
until grep -q 'raised an exception' swallowed.log; do sleep 0.2; done
python3 put.py swallowed a good
sleep 3
