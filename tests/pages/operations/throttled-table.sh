fleet throttled 18107
python3 faults.py 'dynamodb:UpdateItem:"throttled":ProvisionedThroughputExceededException'
sleep 10
