fleet deleted 18109
python3 -c 'import botocore.session as b; b.get_session().create_client("kinesis").delete_stream(StreamName="deleted")'
sleep 3
