kill -9 $(cat reads.pid)
fleet denied 18108
python3 faults.py 'dynamodb:UpdateItem:"denied":AccessDeniedException'
sleep 10
