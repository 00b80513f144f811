python -c "
import boto3
key = {'leaseKey': {'S': 'shardId-000000000000'}}
boto3.client('dynamodb').delete_item(TableName='LocalSample', Key=key)"
until grep -qs 'shardId-000000000000 --to-trim-horizon --create --execute' w1.log; do sleep 0.2; done
