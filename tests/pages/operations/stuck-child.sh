cat > app.py <<'END'
import os, time
from amazon_kclpy import kcl
from amazon_kclpy.v3 import processor

class Processor(processor.RecordProcessorBase):
    def initialize(self, initialize_input):
        pass
    def process_records(self, process_records_input):
        for record in process_records_input.records:
            kind = record.binary_data.decode()
            if kind == "stuck":
                time.sleep(3600)
            if kind == "slow":
                time.sleep(0.3)
            if kind == "poison":
                os._exit(3)
            if kind == "bad":
                raise ValueError("no such field: price")
            try:
                process_records_input.checkpointer.checkpoint(record.sequence_number)
            except kcl.CheckpointError:
                pass
    def lease_lost(self, lease_lost_input):
        pass
    def shard_ended(self, shard_ended_input):
        shard_ended_input.checkpointer.checkpoint()
    def shutdown_requested(self, shutdown_requested_input):
        shutdown_requested_input.checkpointer.checkpoint()

kcl.KCLProcess(Processor()).run()
END
cat > put.py <<'END'
import sys, time
import botocore.session
stream, key, *texts = sys.argv[1:]
kinesis = botocore.session.get_session().create_client("kinesis")
for text in texts:
    kinesis.put_record(StreamName=stream, PartitionKey=key, Data=text.encode())
END
cat > feed.py <<'END'
import sys, time
import botocore.session
stream, text, *keys = sys.argv[1:]
kinesis = botocore.session.get_session().create_client("kinesis")
while True:
    records = [{"PartitionKey": key, "Data": text.encode()} for key in keys]
    kinesis.put_records(StreamName=stream, Records=records)
    time.sleep(0.5)
END
cat > edit.py <<'END'
import sys
import botocore.session
table, key, name, *value = sys.argv[1:]
dynamodb = botocore.session.get_session().create_client("dynamodb")
change = {"Action": "PUT", "Value": {"S": value[0]}} if value else {"Action": "DELETE"}
dynamodb.update_item(TableName=table, Key={"leaseKey": {"S": key}}, AttributeUpdates={name: change})
END
cat > faults.py <<'END'
import json, os, sys, urllib.request
words = ("service", "operation", "contains", "code")
rules = [dict(zip(words, rule.split(":"))) for rule in sys.argv[1:]]
url = os.environ["AWS_ENDPOINT_URL_KINESIS"] + "/_control"
urllib.request.urlopen(url, json.dumps({"faults": rules}).encode())
END
fleet() {
    name=$1 port=$2
    shift 2
    printf '%s\n' "applicationName = $name" "streamName = $name" "executableName = python3 app.py" \
        "AwsCredentialsProvider = EnvironmentVariableCredentialsProvider" "retrievalMode = POLLING" \
        "initialPositionInStream = TRIM_HORIZON" "idleTimeBetweenReadsInMillis = 200" \
        "metricsLevel = NONE" "workerId = w1" "failoverTimeMillis = 2000" "$@" > $name.properties
    (kcl-mld --http 127.0.0.1:$port --properties $name.properties > $name.log 2>&1 & echo $! > $name.pid)
    until test $(grep -s 'started child' $name.log | wc -l) -ge 2; do
        kill -0 $(cat $name.pid)
        sleep 0.2
    done
}
kcl-mld local --stream stuck --stream slow --stream hot --stream poison --stream swallowed \
    --stream lost --stream throttled --stream reads --stream denied --stream deleted --stream edited \
    --stream rewound > aws.env &
until grep -qs NO_PROXY aws.env; do sleep 0.2; done
. ./aws.env
fleet stuck 18101
python3 put.py stuck a stuck more
sleep 14
