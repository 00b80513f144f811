kill -9 $(cat throttled.pid)
python3 faults.py
fleet reads 18120
python3 faults.py kinesis:GetRecords::ProvisionedThroughputExceededException
sleep 35
